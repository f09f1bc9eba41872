import { readFileSync } from 'node:fs';

interface Axe {
  run: (
    context: Element,
    options: object
  ) => Promise<{ violations: { id: string; nodes: { html: string }[] }[] }>;
}

/** findBarriers is what axe finds wrong with the page for people with disabilities, except what needs a browser: contrast and the frame of Headlamp. */
export async function findBarriers(): Promise<string[]> {
  if (!('axe' in globalThis)) {
    // axe expects to be a script of the page.
    (0, eval)(readFileSync('../../test/chromium/axe/axe.min.js', 'utf8'));
  }
  const rules = { 'color-contrast': { enabled: false }, region: { enabled: false } };
  const { violations } = await (globalThis as unknown as { axe: Axe }).axe.run(document.body, {
    rules,
  });
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`);
}
