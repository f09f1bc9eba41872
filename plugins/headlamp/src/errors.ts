import { Unreachable } from './place';

/** Explanation is what went wrong, and what to do next. */
export interface Explanation {
  text: string;
  next: string;
  /** command is one to copy; empty where none helps. */
  command?: string;
}

/** statusOf is the HTTP status of an error of Headlamp; 0 where there is none. */
export function statusOf(error: unknown): number {
  return (error as { status?: number } | null)?.status ?? 0;
}

/** explain says what went wrong. what is what was tried, such as "list API exports", and resource what a permission would be for. */
export function explain(error: unknown, what: string, resource: string): Explanation {
  if (error instanceof Unreachable) {
    return {
      text: `You cannot ${what} from this cluster: its credentials are with Headlamp's server, which uses them for this workspace only.`,
      next: 'Add a context for the workspace to the kubeconfig that Headlamp reads, or load the kubeconfig into Headlamp by Add Cluster:',
      command: `kubectl ws :${error.path} && kubectl ws create-context`,
    };
  }
  switch (statusOf(error)) {
    case 401:
      return {
        text: `This workspace does not accept your credentials: you cannot ${what}.`,
        next: 'Sign in again, or load a kubeconfig that is still valid. A workspace may have issuers of its own.',
      };
    case 403:
      return {
        text: `You may not ${what} in this workspace.`,
        next: `Ask an administrator of the workspace for the right to get, list and watch ${resource}. This tells whether you have it:`,
        command: `kubectl auth can-i list ${resource}`,
      };
    case 404:
      return {
        text: `This cluster does not serve ${resource}.`,
        next: 'Choose a cluster that is a workspace: the URL of its server ends with /clusters/ and the path of the workspace.',
      };
    case 408:
    case 502:
    case 503:
    case 504:
      return {
        text: 'The server of this workspace cannot be reached.',
        next: 'Check the server URL and the certificate authority in the kubeconfig, and that Headlamp can reach it. Then load the page again.',
      };
    default:
      return {
        text: `It was not possible to ${what}: ${
          error instanceof Error ? error.message : String(error)
        }`,
        next: 'Load the page again. If that does not help, ask who runs the installation.',
      };
  }
}
