package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GetConditions returns status.conditions. Callers must not change them.
func (r *RootShard) GetConditions() []metav1.Condition { return r.Status.Conditions }

// GetConditions returns status.conditions. Callers must not change them.
func (s *Shard) GetConditions() []metav1.Condition { return s.Status.Conditions }

// GetConditions returns status.conditions. Callers must not change them.
func (f *FrontProxy) GetConditions() []metav1.Condition { return f.Status.Conditions }

// GetConditions returns status.conditions. Callers must not change them.
func (c *CacheServer) GetConditions() []metav1.Condition { return c.Status.Conditions }

// GetConditions returns status.conditions. Callers must not change them.
func (v *VirtualWorkspace) GetConditions() []metav1.Condition { return v.Status.Conditions }

// GetConditions returns status.conditions. Callers must not change them.
func (k *Kubeconfig) GetConditions() []metav1.Condition { return k.Status.Conditions }

// GetConditions returns status.conditions. Callers must not change them.
func (b *BackupStore) GetConditions() []metav1.Condition { return b.Status.Conditions }

// GetConditions returns status.conditions. Callers must not change them.
func (b *Backup) GetConditions() []metav1.Condition { return b.Status.Conditions }

// GetConditions returns status.conditions. Callers must not change them.
func (b *BackupSchedule) GetConditions() []metav1.Condition { return b.Status.Conditions }

// GetConditions returns status.conditions. Callers must not change them.
func (r *Restore) GetConditions() []metav1.Condition { return r.Status.Conditions }

// GetConditions returns status.conditions. Callers must not change them.
func (r *RestoreDrill) GetConditions() []metav1.Condition { return r.Status.Conditions }
