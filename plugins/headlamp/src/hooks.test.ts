import 'fake-indexeddb/auto';
import { act, renderHook, waitFor } from '@testing-library/react';
import { usePages } from './hooks';
import type { Page } from './workspaces';

const pages: Record<string, Page<string>> = {
  '': { items: ['a', 'b'], next: '2' },
  '2': { items: ['c'], next: undefined },
};

it('loads a list page by page', async () => {
  const list = vi.fn(async (next = '') => pages[next]);
  const { result } = renderHook(() => usePages(list, true));
  expect(result.current.loading).toBe(true);
  await waitFor(() =>
    expect(result.current).toMatchObject({ items: ['a', 'b'], hasMore: true, loading: false })
  );
  await act(() => result.current.load());
  await waitFor(() =>
    expect(result.current).toMatchObject({ items: ['a', 'b', 'c'], hasMore: false, loading: false })
  );
  expect(list.mock.calls).toEqual([[undefined], ['2']]);
});

it('asks for nothing before it is told to', async () => {
  const list = vi.fn(async (next = '') => pages[next]);
  const { result, rerender } = renderHook(({ asked }) => usePages(list, asked), {
    initialProps: { asked: false },
  });
  expect(result.current).toMatchObject({ items: [], loading: false });
  expect(list).not.toHaveBeenCalled();
  rerender({ asked: true });
  await waitFor(() => expect(result.current.items).toEqual(['a', 'b']));
});

it('keeps what it has when a page fails, and loads that page with the next try', async () => {
  const fail = new Error('unreachable');
  let broken = true;
  const list = async (next = '') => {
    if (next && broken) {
      throw fail;
    }
    return pages[next];
  };
  const { result } = renderHook(() => usePages(list, true));
  await waitFor(() => expect(result.current.hasMore).toBe(true));
  await act(() => result.current.load());
  await waitFor(() =>
    expect(result.current).toMatchObject({
      items: ['a', 'b'],
      hasMore: true,
      loading: false,
      error: fail,
    })
  );
  broken = false;
  await act(() => result.current.load());
  await waitFor(() =>
    expect(result.current).toMatchObject({
      items: ['a', 'b', 'c'],
      hasMore: false,
      error: undefined,
    })
  );
});
