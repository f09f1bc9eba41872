package hostcluster

// WidgetAPI are the manifests of an API that tests publish and bind: the cluster-scoped kind Widget, whose spec has an integer, and its APIExport.
const WidgetAPI = `
apiVersion: apis.kcp.io/v1alpha1
kind: APIResourceSchema
metadata: {name: v1.widgets.example.com}
spec:
  group: example.com
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}
---
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: widgets}
spec:
  resources:
  - {group: example.com, name: widgets, schema: v1.widgets.example.com, storage: {crd: {}}}
`
