import type { APIBinding, PermissionClaim } from './types';

/** Answer is what a binding says to a claim of its export. */
export type Answer =
  | 'Accepted'
  | 'Accepted in part'
  | 'Waits to be applied'
  | 'Rejected'
  | 'Not answered';

/** AnsweredClaim is a claim of an export with the answer of a binding. */
export interface AnsweredClaim {
  key: string;
  resource: string;
  verbs: string[];
  answer: Answer;
  /** refused are the verbs that are not accepted of a claim that is accepted in part. */
  refused: string[];
  /** selects says whether the answer is for all objects. */
  selects: 'all objects' | 'some objects' | '';
}

/** resourceOf is the name of a resource with its group, as kubectl writes it. */
export function resourceOf({ group, resource }: { group?: string; resource: string }): string {
  return group ? `${resource}.${group}` : resource;
}

/** keyOf tells claims apart: by resource and identity, as servers do. */
function keyOf({ group = '', resource, identityHash = '' }: PermissionClaim): string {
  return `${resource}.${group}:${identityHash}`;
}

/** answeredClaims are the claims of the export of a binding. */
export function answeredClaims({ spec, status }: APIBinding): AnsweredClaim[] {
  return (status?.exportPermissionClaims ?? []).map(claim => {
    const key = keyOf(claim);
    const answered = spec.permissionClaims?.find(other => keyOf(other) === key);
    const accepted = answered?.state === 'Accepted';
    const refused =
      accepted && !answered.verbs.includes('*')
        ? claim.verbs.filter(verb => !answered.verbs.includes(verb))
        : [];
    let answer: Answer;
    if (!answered) {
      answer = 'Not answered';
    } else if (!accepted) {
      answer = 'Rejected';
    } else if (refused.length > 0) {
      answer = 'Accepted in part';
    } else if (status?.appliedPermissionClaims?.some(other => keyOf(other) === key)) {
      answer = 'Accepted';
    } else {
      answer = 'Waits to be applied';
    }
    const selects = !accepted ? '' : answered.selector?.matchAll ? 'all objects' : 'some objects';
    return { key, resource: resourceOf(claim), verbs: claim.verbs, answer, refused, selects };
  });
}
