import { K8s } from '@kinvolk/headlamp-plugin/lib';
import type * as types from './types';

const { KubeObject } = K8s.cluster;

/** APIExport offers resources of a workspace to others. */
export class APIExport extends KubeObject {
  static kind = 'APIExport';
  static apiName = 'apiexports';
  static apiVersion = 'apis.kcp.io/v1alpha2';
  static isNamespaced = false;

  get object(): types.APIExport {
    return this.jsonData as unknown as types.APIExport;
  }
}

/** APIExportEndpointSlice has the URLs at which a provider reaches the workspaces that bind its export. */
export class APIExportEndpointSlice extends KubeObject {
  static kind = 'APIExportEndpointSlice';
  static apiName = 'apiexportendpointslices';
  static apiVersion = 'apis.kcp.io/v1alpha1';
  static isNamespaced = false;

  get object(): types.EndpointSlice {
    return this.jsonData as unknown as types.EndpointSlice;
  }
}

/** APIBinding brings the resources of an export into a workspace. */
export class APIBinding extends KubeObject {
  static kind = 'APIBinding';
  static apiName = 'apibindings';
  static apiVersion = 'apis.kcp.io/v1alpha2';
  static isNamespaced = false;

  get object(): types.APIBinding {
    return this.jsonData as unknown as types.APIBinding;
  }
}

/** Shard is a server with workspaces. The workspace root has them. */
export class Shard extends KubeObject {
  static kind = 'Shard';
  static apiName = 'shards';
  static apiVersion = 'core.kcp.io/v1alpha1';
  static isNamespaced = false;

  get object(): types.Shard {
    return this.jsonData as unknown as types.Shard;
  }
}
