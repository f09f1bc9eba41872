package crdstorage

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A watch that resumes may have to report changes from before the retirement of a version, which the definition can no longer
// convert. Clients get status 410 then, and list again: the same as from a stock API server, which starts the history of watches
// afresh with each change of a definition. Any other end of the watch makes them resume at the same resource version for ever.
//
// A watch with initial events ends instead. Its objects are the current ones, so that the next one would fail, too, and clients
// repeat it without delay after status 410.

// errRetired is that status.
var errRetired = apierrors.NewResourceExpired("the resource version is from before the retirement of a stored version; list again")

// retiredStatus is the JSON of errRetired.
var retiredStatus = sync.OnceValue(func() string {
	status := newErrorStatus(errRetired)
	status.SetGroupVersionKind(metav1.Unversioned.WithKind("Status")) // clients do not decode it otherwise
	data, err := json.Marshal(status)
	if err != nil {
		panic(err) // a constant
	}
	return string(data)
})

// explainWatch returns errRetired instead of the error of a conversion of an object in a version that the definition does not have. With a
// publication, a definition of the provider converts, whose versions the view does not know.
func (v *View) explainWatch(obj *Object, err error) error {
	if _, published := v.codec.(publicationCodec); err == nil || published || len(v.versions) == 0 || !v.isRetired(obj.GroupVersionKind().Version) {
		return err
	}
	return errRetired
}

// sendsInitialEvents returns whether a client requests a watch with initial events.
func sendsInitialEvents(req *http.Request) bool {
	initial, err := strconv.ParseBool(req.URL.Query().Get("sendInitialEvents"))
	return err == nil && initial
}
