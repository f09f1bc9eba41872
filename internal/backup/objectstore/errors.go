package objectstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/minio/minio-go/v7"
)

// Reasons of errors, for conditions.
const (
	ReasonInvalidSpec        = "InvalidSpec"
	ReasonUnreachable        = "Unreachable"
	ReasonInvalidCertificate = "InvalidCertificate"
	ReasonAccessDenied       = "AccessDenied"
	ReasonBucketNotFound     = "BucketNotFound"
	ReasonObjectNotFound     = "ObjectNotFound"
	ReasonStoreFull          = "StoreFull"
	ReasonClockSkew          = "ClockSkew"
	ReasonRequestFailed      = "RequestFailed"
	// ReasonRemovalRefused is that of a removal for which the credentials have no right, or which a lock of the object forbids.
	ReasonRemovalRefused = "RemovalRefused"
)

// Error is a failure of the store with the next step of its user.
type Error struct {
	Reason, Message string
	err             error
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.err }

// HasReason reports whether an error is one of the store with that reason.
func HasReason(err error, reason string) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason == reason
}

// explain adds what to do to an error of a request. It quotes codes of S3 and no body of a response: a user who may name an endpoint could
// read servers behind it otherwise.
func (s *Store) explain(operation string, err error) error {
	if err == nil {
		return nil
	}
	newError := func(reason, format string, args ...any) error {
		return &Error{Reason: reason, Message: operation + ": " + fmt.Sprintf(format, args...), err: err}
	}
	var (
		hostname  x509.HostnameError
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		network   *net.OpError
		lookup    *net.DNSError
		response  minio.ErrorResponse
		own       *Error
	)
	switch {
	case errors.As(err, &own):
		return err
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", operation, err)
	case errors.As(err, &hostname), errors.As(err, &authority), errors.As(err, &invalid):
		return newError(ReasonInvalidCertificate, "the certificate of %s is not accepted (%v): correct it, or put its CA into endpointCA", s.description, certificateError(err))
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return newError(ReasonUnreachable, "%s does not speak TLS: correct the scheme of endpointURL", s.description)
	case errors.As(err, &lookup):
		return newError(ReasonUnreachable, "DNS does not know the host of %s: correct endpointURL, or try addressingStyle Path", s.description)
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return newError(ReasonUnreachable, "%s does not answer: check endpointURL, the server, and network policies between it and this namespace", s.description)
	case errors.As(err, &response) && response.Code != "":
		return s.explainResponse(response, newError)
	default:
		return fmt.Errorf("%s: %w", operation, err)
	}
}

// explainRead is explain for a request that reads an object: whatever is not known is a failure of the store, too.
func (s *Store) explainRead(key string, err error) error {
	operation := "reading " + s.key(key)
	explained := s.explain(operation, err)
	if known := (*Error)(nil); errors.As(explained, &known) || errors.Is(err, context.Canceled) {
		return explained
	}
	return &Error{Reason: ReasonUnreachable, err: err, Message: fmt.Sprintf("%s: the connection to %s broke, or it does not answer as S3 does: look into its log, and into that of what is between", operation, s.description)}
}

func (s *Store) explainResponse(response minio.ErrorResponse, newError func(reason, format string, args ...any) error) error {
	switch response.Code {
	case minio.NoSuchBucket:
		return newError(ReasonBucketNotFound, "bucket %s does not exist: create it, or correct bucket and region", s.bucket)
	case minio.NoSuchKey:
		return newError(ReasonObjectNotFound, "there is no such object in bucket %s", s.bucket)
	case minio.InvalidAccessKeyID, minio.SignatureDoesNotMatch, "ExpiredToken", "InvalidToken", "XAdminUserNotFound":
		return newError(ReasonAccessDenied, "the store rejects the credentials (%s): correct the Secret of s3Credentials", response.Code)
	case minio.AccessDenied, "AllAccessDisabled", "AccountProblem":
		return newError(ReasonAccessDenied, "the credentials do not allow that (%s): allow s3:ListBucket, s3:GetObject and s3:PutObject on bucket %s", response.Code, s.bucket)
	case "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "InsufficientStorage", "InsufficientCapacity":
		return newError(ReasonStoreFull, "bucket %s is full (%s): raise its quota, or delete old backups", s.bucket, response.Code)
	case minio.RequestTimeTooSkewed:
		return newError(ReasonClockSkew, "the clocks of this machine and of the store differ by more than the store allows: correct the clock that is wrong")
	case minio.AuthorizationHeaderMalformed, "PermanentRedirect", "TemporaryRedirect":
		return newError(ReasonInvalidSpec, "the store expects another region (%s): correct region", response.Code)
	}
	if response.StatusCode == http.StatusInsufficientStorage {
		return newError(ReasonStoreFull, "bucket %s is full (status %d): raise its quota, or delete old backups", s.bucket, response.StatusCode)
	}
	return newError(ReasonRequestFailed, "the store answers with status %d (%.64q): look into its log", response.StatusCode, response.Code)
}

// explainWrite is explain for a request that writes an object, and may lock it.
func (s *Store) explainWrite(key string, err error) error {
	operation := "writing " + s.key(key)
	var response minio.ErrorResponse
	if s.lock == nil || !errors.As(err, &response) {
		return s.explain(operation, err)
	}
	switch response.Code {
	case "InvalidRequest":
		return &Error{Reason: ReasonInvalidSpec, err: err, Message: operation + ": bucket " + s.bucket + " does not lock objects (InvalidRequest): enable object lock on it, or remove objectLock"}
	case minio.AccessDenied:
		return &Error{Reason: ReasonAccessDenied, err: err, Message: operation + ": the credentials do not allow that (AccessDenied): allow s3:PutObject and s3:PutObjectRetention on bucket " + s.bucket}
	}
	return s.explain(operation, err)
}

// certificateError is the reason of crypto/x509, without the URL of the request.
func certificateError(err error) error {
	var verification *tls.CertificateVerificationError
	if errors.As(err, &verification) {
		return verification.Err
	}
	return err
}
