package restore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"filippo.io/age"
	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/backupstore"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/backup/archive"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
	"github.com/atoll-dev/atoll/internal/backup/objectstore"
)

// maxSecretBytes bounds the Secrets of a backup in the memory of the operator.
const maxSecretBytes = 32 << 20

// sourceNamespace is that of the installation that was saved.
func (s *scope) sourceNamespace() string {
	if source := s.restore.Spec.Source; source != nil {
		return source.Namespace
	}
	return s.restore.Namespace
}

// readBackup compares the manifest with the installation, and creates the Secrets. It changes nothing before all of them were compared.
func (s *scope) readBackup(ctx context.Context) error {
	if s.restore.Status.StartedAt != nil {
		return nil
	}
	identities, err := s.readIdentities(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	store, err := backupstore.OpenFor(ctx, s.config.Cluster, s.store, s.sourceNamespace(), s.root.Name, nil)
	if known := (*objectstore.Error)(nil); err != nil && !errors.As(err, &known) {
		return err // of the API server, for one: it says nothing of the backup
	}
	if err != nil {
		return s.unreadable(err)
	}
	opened, err := archive.OpenIn(ctx, store, s.restore.Spec.BackupID, s.restore.Spec.ManifestDigest, archive.MaxOperatorManifestBytes, identities)
	if err != nil {
		return s.unreadable(err)
	}
	defer opened.Close()
	if err := s.compare(ctx, opened.Manifest); err != nil {
		return err
	}
	out, taken := &s.restore.Status, metav1.NewTime(opened.Manifest.CutStoppedAt)
	if s.restore.Spec.Shard != nil {
		if err := s.checkLoss(ctx, opened.Manifest); err != nil {
			return err
		}
		out.Shard = newShardStatus(s.installation.shards[0])
	} else {
		restored, err := s.restoreSecrets(ctx, opened)
		if err != nil {
			return err
		}
		out.Secrets = restored
	}
	started := metav1.NewTime(s.config.Now())
	out.StartedAt, out.BackupTakenAt, out.ManifestDigest, out.Shards = &started, &taken, opened.Digest, s.installation.names()
	return nil
}

// restoreSecrets creates the Secrets of a backup, and returns their number.
func (s *scope) restoreSecrets(ctx context.Context, opened *archive.Backup) (int32, error) {
	secrets, err := opened.Secrets(ctx, maxSecretBytes)
	if err != nil {
		return 0, s.unreadable(err)
	}
	if s.restore.Spec.Isolated {
		secrets = mountedOnly(secrets, s.installation)
	}
	return int32(len(secrets)), s.createSecrets(ctx, secrets)
}

// readIdentities reads the private keys.
func (s *scope) readIdentities(ctx context.Context) ([]age.Identity, error) {
	ref := s.restore.Spec.Identity
	secret, err := apply.Get[corev1.Secret](ctx, s.config.Cluster, s.restore.Namespace, ref.Name)
	if err != nil {
		return nil, err
	}
	if secret == nil || len(secret.Data[ref.Key]) == 0 {
		return nil, s.wait(status.ReasonSecretNotFound, "Secret %s with key %s does not exist in namespace %s: create it", ref.Name, ref.Key, s.restore.Namespace)
	}
	identities, err := age.ParseIdentities(bytes.NewReader(secret.Data[ref.Key]))
	if err != nil { // the error of age quotes the line, which may be a key
		return nil, s.wait(reasonBackupUnusable, "Secret %s has no identities of age under key %s: want lines AGE-SECRET-KEY-..., as age-keygen writes them", ref.Name, ref.Key)
	}
	return identities, nil
}

// unreadable waits for a store that may answer later, and refuses what it has.
func (s *scope) unreadable(err error) error {
	var known *objectstore.Error
	switch {
	case errors.As(err, &known) && known.Reason != objectstore.ReasonObjectNotFound:
		s.report.RequeueWithin(retryInterval)
		return s.wait(known.Reason, "%s", known.Message)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	}
	return s.refuse(reasonBackupUnusable, "the backup cannot be restored: %v", err)
}

// compare compares the manifest with the installation.
func (s *scope) compare(ctx context.Context, saved *manifest.Manifest) error {
	from := saved.Installation
	var names []string
	for _, shard := range saved.Shards {
		names = append(names, shard.Name)
	}
	missing, unknown := without(names, s.installation.names()), without(s.installation.names(), names)
	if s.restore.Spec.Shard != nil {
		if err := s.compareInstallation(saved, unknown); err != nil {
			return err
		}
		missing = nil
	}
	switch {
	case from.RootShard != s.root.Name || from.Namespace != s.sourceNamespace():
		return s.refuse(reasonOtherOwner, "the backup is that of RootShard %s/%s, want %s/%s: correct rootShardRef or source", from.Namespace, from.RootShard, s.sourceNamespace(), s.root.Name)
	case !s.restore.Spec.TakeOver && !s.restore.Spec.Isolated && (from.Namespace != s.restore.Namespace || from.KubernetesCluster != s.config.ClusterID):
		return s.refuse(reasonOtherOwner, "the backup is that of an installation in namespace %s of another place (cluster %s, this is namespace %s of cluster %s). Two installations must not live on one backup: if that one does not run any more, create another Restore with takeOver: true",
			from.Namespace, cmp.Or(from.KubernetesCluster, "unknown"), s.restore.Namespace, s.config.ClusterID)
	case len(missing) > 0:
		return s.wait(reasonShardsDiffer, "the backup has shards that do not exist: create the Shards %s of RootShard %s", strings.Join(missing, ", "), s.root.Name)
	case len(unknown) > 0:
		return s.wait(reasonShardsDiffer, "the backup has no shards %s: delete these Shards, and create them again when the installation works", strings.Join(unknown, ", "))
	}
	if !s.restore.Spec.Isolated && from.KubernetesCluster == s.config.ClusterID && from.Namespace != s.restore.Namespace { // a takeover
		other, err := apply.Get[operatorv1alpha1.RootShard](ctx, s.config.Cluster, from.Namespace, from.RootShard)
		if err != nil {
			return err
		}
		if other != nil {
			return s.refuse(reasonOtherOwner, "the backup is that of RootShard %s/%s, which still exists: two installations must not live on one backup. Delete that one with its Shards, and create another Restore", from.Namespace, from.RootShard)
		}
	}
	for _, shard := range s.installation.shards {
		at := slices.IndexFunc(saved.Shards, func(saved manifest.Shard) bool { return saved.Name == shard.Name() }) // it is there
		// A shard with another prefix does not find the keys that are restored, and starts empty.
		if was, is := path.Join("/", saved.Shards[at].Prefix), shard.prefix(); was != is {
			return s.wait(reasonShardsDiffer, "the keys of shard %s have the prefix %s in the backup, and the shard reads those of %s: set its etcd.prefix to %s", shard.Name(), was, is, was)
		}
	}
	if have, want := s.config.Image.With(s.root.Spec.Image).String(), from.Version; want != "" && tagOf(have) != tagOf(want) {
		if s.restore.Spec.Shard != nil {
			return s.refuse(reasonOtherVersion, "the backup is of version %s, and RootShard %s runs %s: restore a backup of this version, or restore the shard by hand (docs/restore-by-hand.md)", want, s.root.Name, have)
		}
		return s.refuse(reasonOtherVersion, "the backup is of version %s, and RootShard %s runs %s: set its image.tag to that version, create another Restore, and upgrade when the installation works", want, s.root.Name, have)
	}
	return nil
}

// tagOf is an image without its repository, which may be a mirror.
func tagOf(image string) string {
	name := image[strings.LastIndex(image, "/")+1:]
	at := strings.IndexAny(name, ":@")
	if at < 0 {
		return ""
	}
	return name[at:]
}

func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// mountedOnly returns the Secrets that the extraVolumes of shards mount, such as those with the keys of encrypted objects. A copy with the
// certificate authorities and the keys of tokens of its installation could act in its name.
func mountedOnly(secrets []archive.Secret, installation *installation) []archive.Secret {
	mounted := map[string]bool{}
	for _, shard := range installation.shards {
		for _, volume := range shard.Spec().ExtraVolumes {
			if volume.Secret != nil {
				mounted[volume.Secret.SecretName] = true
			}
		}
	}
	return slices.DeleteFunc(secrets, func(secret archive.Secret) bool {
		return !mounted[secret.Metadata.Name] || isAuthority(secret, installation)
	})
}

// isAuthority reports whether a Secret has a key of the certificate authorities or of the tokens of an installation, whatever mounts it. One
// that the user provides, as CA of the installation, has any name.
func isAuthority(secret archive.Secret, installation *installation) bool {
	name, root := secret.Metadata.Name, installation.shards[0].Root()
	if _, isTokenKey := desired.ParseTokenKey(name); isTokenKey || len(secret.Data[corev1.TLSPrivateKeyKey]) > 0 {
		return true
	}
	first := strings.TrimSuffix(strings.TrimRight(name, "0123456789"), "-") // without the number of another key
	for _, ca := range []desired.CA{desired.RootCA, desired.ServerCA, desired.ClientCA, desired.RequestHeaderCA, desired.ServiceAccountCA} {
		if known := desired.CAName(root, ca); name == known || first == known {
			return true
		}
	}
	return false
}

// createSecrets creates the Secrets of a backup that do not exist. It refuses if one exists with another content.
func (s *scope) createSecrets(ctx context.Context, secrets []archive.Secret) error {
	var differing []string
	var missing []*corev1.Secret
	for _, saved := range secrets {
		secret, err := newSecret(s.restore.Namespace, saved)
		if err != nil {
			return s.refuse(reasonBackupUnusable, "the backup cannot be restored: %v", err)
		}
		live, err := apply.Get[corev1.Secret](ctx, s.config.Cluster, s.restore.Namespace, secret.Name)
		switch {
		case err != nil:
			return err
		case live == nil:
			missing = append(missing, secret)
		case !maps.EqualFunc(live.Data, secret.Data, bytes.Equal):
			differing = append(differing, secret.Name)
		}
	}
	if len(differing) > 0 {
		return s.refuse(reasonSecretsDiffer, "Secrets %s exist with another content than in the backup, and none is overwritten: delete those of an installation that is not used, and create another Restore", strings.Join(differing, ", "))
	}
	for _, secret := range missing {
		// One that was created meanwhile is compared by the next reconcile.
		if err := s.config.Cluster.Create(ctx, secret); err != nil {
			return fmt.Errorf("creating Secret %s/%s: %w", secret.Namespace, secret.Name, err)
		}
	}
	return nil
}

// newSecret returns a Secret of a backup. A user who may write to the bucket may have created it, so it gets no labels and annotations by
// which other programs use it, and is not a credential of the cluster.
func newSecret(namespace string, saved archive.Secret) (*corev1.Secret, error) {
	switch kind := corev1.SecretType(saved.Type); kind {
	case corev1.SecretTypeServiceAccountToken, corev1.SecretTypeBootstrapToken:
		return nil, fmt.Errorf("Secret %s has the type %s, which gives rights in the cluster", saved.Metadata.Name, kind)
	}
	out := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: saved.Metadata.Name, Namespace: namespace}, Type: corev1.SecretType(saved.Type), Data: saved.Data,
	}
	// Others select Secrets, such as those of clusters or repositories for a tool that deploys with the rights that it has there.
	if value, found := saved.Metadata.Labels[certmanagerv1.PartOfCertManagerControllerLabelKey]; found {
		metav1.SetMetaDataLabel(&out.ObjectMeta, certmanagerv1.PartOfCertManagerControllerLabelKey, value)
	}
	for key, value := range saved.Metadata.Annotations {
		if strings.HasPrefix(key, "cert-manager.io/") { // without them, certificates are issued again
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, key, value)
		}
	}
	return out, nil
}
