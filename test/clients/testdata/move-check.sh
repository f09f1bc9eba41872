same() {
  if [ "$(old "$@")" != "$(new "$@")" ]; then
    echo "$workspace: kubectl $* differs:"
    old "$@"
    new "$@"
    exit 1
  fi
}
workspace=root:acme:provider
same get apiexport cowboys -o jsonpath='{.status.identityHash}'
workspace=root:acme:consumer
same get cowboys,configmaps,secrets,serviceaccounts,roles --all-namespaces -o name
same get sheriffs -o jsonpath='{.items[*].spec}'
same get cowboys --all-namespaces -o jsonpath='{.items[*].spec}{.items[*].status}'
same get configmap horse --namespace town -o jsonpath='{.data}'
same get secret badge --namespace town -o jsonpath='{.data}'
same get apibindings -o jsonpath='{.items[*].status.phase}{.items[*].status.boundResources[*].resource}'
new delete cowboy john --namespace town
new get configmap horse --namespace town
echo moved
