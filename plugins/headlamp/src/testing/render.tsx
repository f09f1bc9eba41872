import { render } from '@testing-library/react';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { createTheme, ThemeProvider } from '@mui/material/styles';
import type { ReactElement } from 'react';
import { Provider } from 'react-redux';
import { MemoryRouter, Route } from 'react-router-dom';
import store from '@kinvolk/headlamp-plugin/lib/redux/stores/store';

/** renderPage renders a page of a cluster with the store of Headlamp. */
export function renderPage(page: ReactElement, cluster: string) {
  const url = `/c/${cluster}/kcp`;
  // Headlamp reads the cluster from the address, too.
  window.history.replaceState(null, '', url);
  const queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  return render(
    <Provider store={store}>
      <QueryClientProvider client={queries}>
        <ThemeProvider theme={createTheme()}>
          <MemoryRouter initialEntries={[url]}>
            <Route path="/c/:cluster">{page}</Route>
          </MemoryRouter>
        </ThemeProvider>
      </QueryClientProvider>
    </Provider>
  );
}
