import '@testing-library/jest-dom/vitest';
import { lightTheme } from '@kinvolk/headlamp-plugin/lib/components/App/defaultAppThemes';
import { setStore } from '@kinvolk/headlamp-plugin/lib/lib/router/createRouteURL';
import { createMuiTheme } from '@kinvolk/headlamp-plugin/lib/lib/themes';
import store from '@kinvolk/headlamp-plugin/lib/redux/stores/store';
import { ThemeProvider } from '@mui/material/styles';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { render } from '@testing-library/react';
import type { ReactElement } from 'react';
import { Provider } from 'react-redux';
import { MemoryRouter, Route } from 'react-router-dom';

/** renderPage renders a page of a cluster with the store of Headlamp. */
export function renderPage(page: ReactElement, cluster: string) {
  const url = `/c/${cluster}/kcp`;
  // Headlamp does this when it starts.
  setStore(store);
  // Headlamp reads the cluster from the address, too.
  window.history.replaceState(null, '', url);
  const queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  return render(
    <Provider store={store}>
      <QueryClientProvider client={queries}>
        <ThemeProvider theme={createMuiTheme(lightTheme)}>
          <MemoryRouter initialEntries={[url]}>
            <Route path="/c/:cluster">{page}</Route>
            <Route
              render={({ location }) => <output aria-label="address">{location.pathname}</output>}
            />
          </MemoryRouter>
        </ThemeProvider>
      </QueryClientProvider>
    </Provider>
  );
}
