import { type Connection, readConnection } from './kubeconfig';

// Headlamp keeps kubeconfigs that a person loads in this database of the browser.
const database = 'kubeconfigs';
const table = 'kubeconfigStore';

/** findConnection is the connection of a cluster whose kubeconfig is in the browser; undefined where only Headlamp's server has it. */
export async function findConnection(cluster: string): Promise<Connection | undefined> {
  for (const kubeconfig of await listKubeconfigs()) {
    const connection = readConnection(kubeconfig, cluster);
    if (connection) {
      return connection;
    }
  }
  return undefined;
}

function listKubeconfigs(): Promise<string[]> {
  return new Promise((resolve, reject) => {
    const opened = indexedDB.open(database, 1);
    // Headlamp makes the table only where it makes the database, so that a database without it would break Headlamp.
    opened.onupgradeneeded = () => {
      opened.result.createObjectStore(table, { keyPath: 'id', autoIncrement: true });
    };
    opened.onerror = () => reject(opened.error);
    opened.onsuccess = () => {
      const listed = opened.result.transaction(table, 'readonly').objectStore(table).getAll();
      listed.onerror = () => reject(listed.error);
      listed.onsuccess = () => {
        opened.result.close();
        resolve(listed.result.map(({ kubeconfig }: { kubeconfig: string }) => kubeconfig));
      };
    };
  });
}

/** userID is by what Headlamp's server tells the clusters of its users apart. Headlamp makes it with its first request. */
export function userID(): string {
  return localStorage.getItem('headlamp-userId') ?? '';
}
