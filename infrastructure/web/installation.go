package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/internal/writetimeout"
)

// Installation is the installation whose objects in the host cluster the console shows.
type Installation struct {
	// Host is the client configuration of the host cluster, with the credentials of this server.
	Host *rest.Config
	// Namespace is the namespace of the installation there.
	Namespace string
}

const installationPath = "/installation/{resource}"

var operatorVersion = schema.GroupVersion{Group: "operator.kcp.io", Version: "v1alpha1"}

// operatorResources are those that are served. Kubeconfigs are not among them: they name Secrets with credentials.
var operatorResources = map[string]bool{
	"rootshards": true, "shards": true, "frontproxies": true, "cacheservers": true, "virtualworkspaces": true,
	"backupstores": true, "backups": true, "backupschedules": true, "restores": true, "restoredrills": true,
}

const (
	mostListed   = 500 // objects per response
	longestWatch = 300 // seconds: the right of a user is checked when a watch begins
	// watchGrace is how much longer than its time-out a watch may take, for a server that does not end it.
	watchGrace = 30 * time.Second
)

// reasonHost is the reason of a cause in a Status: the rights of this server are missing, not those of the caller.
const reasonHost = metav1.CauseType("HostCluster")

// installationReader serves the operator's objects to callers who may list or watch them in the workspace root. It sends requests of its own to
// the host cluster, in which nothing is of the caller but checked parameters.
type installationReader struct {
	namespace    string
	host         rest.Interface
	reviews      rest.Interface // in root, without credentials
	shuttingDown context.Context
	timeout      time.Duration
	log          logr.Logger
}

// newInstallationReader returns a handler that reaches the front proxy as the forwarder does.
func newInstallationReader(ctx context.Context, cfg Config, front *forwarder) (*installationReader, error) {
	root := unlimited(&rest.Config{Host: "https://" + front.host + "/clusters/root"})
	reviews, err := authorizationclient.NewForConfigAndClient(root, &http.Client{Transport: front.transport, CheckRedirect: noRedirect})
	if err != nil {
		return nil, fmt.Errorf("the client of the front proxy: %w", err)
	}
	config := unlimited(rest.CopyConfig(cfg.Installation.Host))
	config.UserAgent = rest.DefaultKubernetesUserAgent()
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.WarningHandlerWithContext = rest.NoWarnings{}
	host, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("the client of the host cluster: %w", err)
	}
	client, err := rest.UnversionedRESTClientForConfigAndClient(config, &http.Client{Transport: host, CheckRedirect: noRedirect})
	if err != nil {
		return nil, fmt.Errorf("the client of the host cluster: %w", err)
	}
	return &installationReader{
		namespace: cfg.Installation.Namespace, host: client, reviews: reviews.RESTClient(),
		shuttingDown: ctx, timeout: cfg.Limits.RequestTimeout, log: cfg.Log,
	}, nil
}

// unlimited returns the configuration without client-side limits: the limits of this server and those of the other one apply.
func unlimited(config *rest.Config) *rest.Config {
	config.QPS = -1
	return config
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// ServeHTTP implements http.Handler.
func (i *installationReader) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	resource, isWatch := req.PathValue("resource"), writetimeout.IsWatch(req)
	parameters, refused := checkInstallation(req)
	if refused != nil {
		writeStatus(w, refused)
		return
	}
	token, ok := BearerToken(req.Header)
	if !ok {
		writeStatus(w, apierrors.NewUnauthorized("a bearer token is required"))
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), i.timeout)
	defer cancel()
	verb := "list"
	if isWatch {
		verb = "watch"
	}
	if refused := i.authorize(ctx, token, verb, resource); refused != nil {
		writeStatus(w, refused)
		return
	}
	if isWatch {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(req.Context(), longestWatch*time.Second+watchGrace)
		defer end()
		defer context.AfterFunc(i.shuttingDown, end)()
	}
	read := i.host.Get().AbsPath("/apis", operatorVersion.Group, operatorVersion.Version).Namespace(i.namespace).Resource(resource).
		SetHeader("Accept", "application/json").MaxRetries(0)
	for name, value := range parameters {
		read = read.Param(name, value)
	}
	body, err := read.Stream(ctx)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			i.log.V(1).Info("The host cluster has not answered", "resource", resource, "namespace", i.namespace, "err", err.Error())
		}
		writeStatus(w, hostFailure(err, verb, resource))
		return
	}
	defer func() { _ = body.Close() }()
	w.Header().Set("Content-Type", "application/json")
	pass(w, body)
}

// authorize asks the workspace root whether the caller may do this there to all objects of the resource.
func (i *installationReader) authorize(ctx context.Context, token, verb, resource string) *apierrors.StatusError {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: operatorVersion.Group, Version: operatorVersion.Version, Resource: resource},
	}}
	answer := &authorizationv1.SelfSubjectAccessReview{}
	err := i.reviews.Post().Resource("selfsubjectaccessreviews").SetHeader("Authorization", "Bearer "+token).Body(review).MaxRetries(0).Do(ctx).Into(answer)
	switch {
	case apierrors.IsUnauthorized(err):
		return apierrors.NewUnauthorized("the workspace root does not accept the token")
	case apierrors.IsTooManyRequests(err):
		return apierrors.NewTooManyRequests("the front proxy has too much to do, try again later", 1)
	case err != nil && !apierrors.IsForbidden(err):
		if !errors.Is(err, context.Canceled) {
			i.log.V(1).Info("The front proxy has not answered whether a user may read the installation", "err", err.Error())
		}
		return apierrors.NewServiceUnavailable("the front proxy does not answer")
	case err != nil || !answer.Status.Allowed || answer.Status.Denied:
		return apierrors.NewForbidden(operatorVersion.WithResource(resource).GroupResource(), "",
			fmt.Errorf("this needs the right to %s %s.%s in the workspace root", verb, resource, operatorVersion.Group))
	}
	return nil
}

// checkInstallation returns the parameters for the host cluster, or an error if the request must not be served.
func checkInstallation(req *http.Request) (map[string]string, *apierrors.StatusError) {
	if !operatorResources[req.PathValue("resource")] {
		return nil, notFound("only kinds of the operator are served here")
	}
	if req.Method != http.MethodGet {
		return nil, apierrors.NewMethodNotSupported(noResource, req.Method)
	}
	query, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return nil, apierrors.NewBadRequest("the query cannot be parsed")
	}
	isWatch := writetimeout.IsWatch(req)
	parameters := map[string]string{}
	for name, values := range query {
		if len(values) != 1 {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the parameter %q occurs %d times, expected once", name, len(values)))
		}
		switch name {
		case "watch", "limit", "timeoutSeconds": // below
		case "allowWatchBookmarks", "resourceVersion", "continue":
			parameters[name] = values[0]
		default:
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the parameter %q is not served here", name))
		}
	}
	name, most := "limit", mostListed
	if isWatch {
		parameters["watch"] = "true"
		name, most = "timeoutSeconds", longestWatch
	}
	number := most
	if text := query.Get(name); text != "" {
		asked, err := strconv.Atoi(text)
		if err != nil || asked < 1 {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the parameter %q is %q, expected a number from 1", name, text))
		}
		number = min(asked, most)
	}
	parameters[name] = strconv.Itoa(number)
	return parameters, nil
}

// hostFailure returns the error for the caller, with nothing of what the host cluster has said.
func hostFailure(err error, verb, resource string) *apierrors.StatusError {
	switch {
	case apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err):
		failed := apierrors.NewForbidden(operatorVersion.WithResource(resource).GroupResource(), "",
			errors.New("the host cluster does not let this server "+verb+" them"))
		failed.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: reasonHost, Message: "the credentials of this server need a Role in the namespace of the installation"}}
		return failed
	case apierrors.IsNotFound(err):
		return notFound("the host cluster does not have this kind of the operator")
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		return apierrors.NewResourceExpired("the resource version or the continue token is too old: list again")
	case apierrors.IsBadRequest(err) || apierrors.IsInvalid(err):
		return apierrors.NewBadRequest("the host cluster does not accept the parameters")
	case apierrors.IsTooManyRequests(err):
		return apierrors.NewTooManyRequests("the host cluster has too much to do, try again later", 1)
	}
	return apierrors.NewServiceUnavailable("the host cluster does not answer")
}

func notFound(message string) *apierrors.StatusError {
	failed := apierrors.NewNotFound(noResource, "")
	failed.ErrStatus.Message = message
	return failed
}

// pass sends the header now, because a watch may have no event for long, and each part of the body as it arrives. A response that is not
// complete ends the connection, so that nobody takes it for complete.
func pass(w http.ResponseWriter, body io.Reader) {
	client, part := http.NewResponseController(w), make([]byte, 32<<10)
	if client.Flush() != nil {
		return
	}
	for {
		count, err := body.Read(part)
		if count > 0 {
			if _, err := w.Write(part[:count]); err != nil {
				return
			}
			if client.Flush() != nil {
				return
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}
