import * as Iconify from '@iconify/react';
import * as lib from '@kinvolk/headlamp-plugin/lib';
import { runPlugin } from '@kinvolk/headlamp-plugin/lib/plugin/runPlugin';
import * as MuiMaterial from '@mui/material';
import { readFileSync } from 'node:fs';
import * as React from 'react';
import * as ReactJSX from 'react/jsx-runtime';
import * as ReactRouter from 'react-router-dom';

/**
 * loadPlugin runs the plugin that `npm run build` has made, by what runs plugins in Headlamp, with those of Headlamp's libraries that it
 * uses. Headlamp's own list of them has an editor that does not load outside of browsers.
 */
export function loadPlugin() {
  Object.assign(globalThis, {
    pluginLib: { ...lib, Iconify, MuiMaterial, React, ReactJSX, ReactRouter },
  });
  const fail = (error: unknown) => {
    throw error;
  };
  runPlugin(readFileSync('dist/main.js', 'utf8'), 'atoll-workspaces', '', fail, Function, [], []);
}
