import { K8s, Router } from '@kinvolk/headlamp-plugin/lib';
import { useCallback, useEffect, useState } from 'react';
import { useHistory } from 'react-router-dom';
import { addCluster, findPlace, type Place } from './place';
import type { Page } from './workspaces';

/** usePlace is the place of the cluster that the person has chosen; undefined while it is looked up. */
export function usePlace(): { place?: Place; error?: unknown } {
  const cluster = K8s.useCluster() ?? '';
  const server = K8s.useClustersConf()?.[cluster]?.server as string | undefined;
  const [state, setState] = useState<{ place?: Place; error?: unknown }>({});
  useEffect(() => {
    let current = true;
    findPlace(cluster, server).then(
      place => current && setState({ place }),
      error => current && setState({ error })
    );
    return () => {
      current = false;
    };
  }, [cluster, server]);
  // The place of the cluster before is not that of this one.
  return state.place && state.place.cluster !== cluster ? {} : state;
}

/** Pages is a list that is loaded page by page. */
export interface Pages<T> {
  items: T[];
  hasMore: boolean;
  loading: boolean;
  error?: unknown;
  load: () => void;
}

/** usePages loads the first page if told so, and the next with each call of load. What a page before has is kept when one fails. */
export function usePages<T>(list: (next?: string) => Promise<Page<T>>, atOnce: boolean): Pages<T> {
  const [state, setState] = useState<{
    items: T[];
    next?: string;
    loading: boolean;
    error?: unknown;
  }>({
    items: [],
    loading: atOnce,
  });
  const { items, next, loading, error } = state;
  const load = useCallback(
    async (items: T[], next?: string) => {
      setState({ items, next, loading: true });
      try {
        const page = await list(next);
        setState({ items: [...items, ...page.items], next: page.next, loading: false });
      } catch (error) {
        setState({ items, next, loading: false, error });
      }
    },
    [list]
  );
  useEffect(() => {
    if (atOnce) {
      load([]);
    }
  }, [atOnce, load]);
  return { items, hasMore: next !== undefined, loading, error, load: () => load(items, next) };
}

/** useAdd makes workspaces clusters of Headlamp. */
export function useAdd(place: Place, onError: (error: unknown) => void): (paths: string[]) => void {
  return async paths => {
    try {
      for (const path of paths) {
        await addCluster(place, path);
      }
      // Headlamp reads its clusters when it starts.
      window.location.reload();
    } catch (error) {
      onError(error);
    }
  };
}

/** useOpen goes to the page of a workspace in Headlamp, which becomes one of its clusters. */
export function useOpen(place: Place, onError: (error: unknown) => void): (path: string) => void {
  const history = useHistory();
  const names = Object.keys(K8s.useClustersConf() ?? {});
  return async path => {
    try {
      const cluster = path === place.address?.path ? place.cluster : await addCluster(place, path);
      history.push(Router.createRouteURL('kcpWorkspaces', { cluster }));
      if (!names.includes(cluster)) {
        // Headlamp reads its clusters when it starts.
        window.location.reload();
      }
    } catch (error) {
      onError(error);
    }
  };
}
