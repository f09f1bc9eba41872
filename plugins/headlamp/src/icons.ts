// Icons of the plugin itself: Headlamp would fetch those that it does not have from the internet.

/** chevron points to the right. */
export const chevron = {
  body: '<path fill="currentColor" d="M9 6l6 6-6 6z"/>',
  width: 24,
  height: 24,
};

/** tree is a box with two below it. */
export const tree = {
  body: '<path fill="none" stroke="currentColor" stroke-width="2" d="M6 6v12h8M6 9h8"/><path fill="currentColor" d="M3 2h6v4H3zM14 6h7v6h-7zM14 15h7v6h-7z"/>',
  width: 24,
  height: 24,
};
