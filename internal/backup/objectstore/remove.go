package objectstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/minio/minio-go/v7"
)

// maxUploadPages bounds the lists of incomplete uploads that one call reads.
const maxUploadPages = 100

// Upload is a multipart upload that was not ended.
type Upload struct {
	// Key is that of the object, below the prefix of the store.
	Key string
	id  string
}

// Keys returns the keys of all objects that begin with a prefix.
func (s *Store) Keys(ctx context.Context, prefix string) ([]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var out []string
	for object := range s.client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.folder() + prefix, Recursive: true}) {
		if object.Err != nil {
			return nil, s.explain("listing objects", object.Err)
		}
		out = append(out, strings.TrimPrefix(object.Key, s.folder()))
	}
	return out, nil
}

// Remove removes an object. It succeeds if there is none. In a bucket with versions, the object is hidden, and the rules of the bucket
// decide about its versions.
func (s *Store) Remove(ctx context.Context, key string) error {
	err := s.client.RemoveObject(ctx, s.bucket, s.key(key), minio.RemoveObjectOptions{})
	return s.explainRemoval("removing "+s.key(key), "s3:DeleteObject", err)
}

// Uploads returns the uploads below the prefix that were not ended: those that run, and those that were interrupted.
func (s *Store) Uploads(ctx context.Context) ([]Upload, error) {
	core := minio.Core{Client: s.client}
	var out []Upload
	keyMarker, idMarker := "", ""
	for range maxUploadPages {
		page, err := core.ListMultipartUploads(ctx, s.bucket, s.folder(), keyMarker, idMarker, "", 0)
		if err != nil {
			return nil, s.explainRemoval("listing incomplete uploads", "s3:ListBucketMultipartUploads", err)
		}
		for _, upload := range page.Uploads {
			if key, below := strings.CutPrefix(upload.Key, s.folder()); below {
				out = append(out, Upload{key, upload.UploadID})
			}
		}
		if !page.IsTruncated || page.NextKeyMarker == keyMarker && page.NextUploadIDMarker == idMarker {
			break
		}
		keyMarker, idMarker = page.NextKeyMarker, page.NextUploadIDMarker
	}
	return out, nil
}

// Abort removes the parts of an upload.
func (s *Store) Abort(ctx context.Context, upload Upload) error {
	core := minio.Core{Client: s.client}
	err := core.AbortMultipartUpload(ctx, s.bucket, s.key(upload.Key), upload.id)
	if minio.ToErrorResponse(err).Code == minio.NoSuchUpload {
		return nil
	}
	return s.explainRemoval("ending an incomplete upload of "+s.key(upload.Key), "s3:AbortMultipartUpload", err)
}

// explainRemoval is explain for requests that need a right which saving and reading do not.
func (s *Store) explainRemoval(operation, right string, err error) error {
	var response minio.ErrorResponse
	if errors.As(err, &response) && (response.Code == minio.AccessDenied || response.Code == "ObjectLocked" || response.Code == "MethodNotAllowed") {
		return &Error{Reason: ReasonRemovalRefused, err: err, Message: fmt.Sprintf(
			"%s: the store refuses (%.64s): allow the credentials %s on bucket %s, or wait until the lock of the object ends", operation, response.Code, right, s.bucket)}
	}
	return s.explain(operation, err)
}
