// jsdom brings this package, without types.
declare module 'ws';
