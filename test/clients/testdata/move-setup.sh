set -eu -o pipefail
exec 2>&1
for name in old new; do
  bin/kcp start --root-directory "$PWD/$name" --batteries-included=+workspace-types >"$name.log" 2>&1 &
done
for name in old new; do
  until grep -q '^.*Ready\. To use it' "$name.log"; do kill -0 %1; kill -0 %2; sleep 0.2; done
  cp "$name/admin.kubeconfig" "$name.kubeconfig"
done
url() { kubectl --kubeconfig "$1.kubeconfig" --context base config view --minify -o jsonpath='{.clusters[0].cluster.server}'; }
OLD_URL=$(url old) NEW_URL=$(url new)
WORKSPACES="root:acme root:acme:provider root:acme:consumer"
for name in old new; do
  export KUBECONFIG=$PWD/$name.kubeconfig
  kubectl ws :root
  kubectl create workspace acme --type organization --enter
  kubectl create workspace provider --type universal
  kubectl create workspace consumer --type universal
done
export KUBECONFIG=$PWD/old.kubeconfig
kubectl ws :root:acme:provider
kubectl apply -f - <<'YAML'
apiVersion: apis.kcp.io/v1alpha1
kind: APIResourceSchema
metadata: {name: v1.cowboys.wildwest.dev}
spec:
  group: wildwest.dev
  names: {plural: cowboys, singular: cowboy, kind: Cowboy, listKind: CowboyList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      type: object
      properties:
        spec: {type: object, properties: {intent: {type: string}}}
        status: {type: object, properties: {result: {type: string}}}
---
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: cowboys}
spec:
  resources: [{name: cowboys, group: wildwest.dev, schema: v1.cowboys.wildwest.dev, storage: {crd: {}}}]
  permissionClaims: [{group: "", resource: configmaps, verbs: ["*"]}]
YAML
kubectl ws :root:acme:consumer
kubectl kcp bind apiexport root:acme:provider:cowboys --accept-permission-claim configmaps.core
kubectl apply -f - <<'YAML'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sheriffs.wild.dev}
spec:
  group: wild.dev
  names: {plural: sheriffs, singular: sheriff, kind: Sheriff, listKind: SheriffList}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {county: {type: string}}}}}}}
---
apiVersion: v1
kind: Namespace
metadata: {name: town}
---
apiVersion: v1
kind: Secret
metadata: {name: badge, namespace: town}
stringData: {star: gold}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: town}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
YAML
kubectl wait --for=condition=Established crd/sheriffs.wild.dev
kubectl apply -f - <<'YAML'
apiVersion: wild.dev/v1
kind: Sheriff
metadata: {name: wyatt}
spec: {county: cochise}
---
apiVersion: wildwest.dev/v1
kind: Cowboy
metadata: {name: john, namespace: town, finalizers: [wildwest.dev/saloon]}
spec: {intent: ride}
YAML
kubectl patch cowboy john --namespace town --subresource status --type merge --patch '{"status":{"result":"alive"}}'
owner=$(kubectl get cowboy john --namespace town -o jsonpath='{.metadata.uid}')
kubectl apply -f - <<YAML
apiVersion: v1
kind: ConfigMap
metadata: {name: horse, namespace: town, ownerReferences: [{apiVersion: wildwest.dev/v1, kind: Cowboy, name: john, uid: $owner}]}
data: {name: silver}
YAML
