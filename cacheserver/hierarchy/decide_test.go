package hierarchy

import "testing"

func TestDecide(t *testing.T) {
	const cacheName = "europe"
	one, two := digest{1}, digest{2}
	published := summary{exists: true, digest: one, global: true}
	regional := summary{exists: true, digest: one}
	parentCopy := summary{exists: true, digest: one, global: true, down: true}
	ownCopy := summary{exists: true, digest: one, global: true, via: cacheName}
	otherCopy := summary{exists: true, digest: one, global: true, via: "asia"}
	direct := summary{exists: true, digest: one, global: true}
	with := func(c summary, d digest) summary { c.digest = d; return c }
	for name, tc := range map[string]struct {
		facts decisionInput
		want  action
	}{
		"an object of an own shard is created in the parent":                             {decisionInput{local: published, owned: true}, createInParent},
		"an object of a shard without a report is created in the parent":                 {decisionInput{local: published, unowned: true}, createInParent},
		"a regional object is not created in the parent":                                 {decisionInput{local: regional, owned: true}, noAction},
		"an equal copy is left":                                                          {decisionInput{local: published, parent: ownCopy, owned: true}, noAction},
		"a changed object is updated in the parent":                                      {decisionInput{local: with(published, two), parent: ownCopy, owned: true}, updateInParent},
		"an object that lost its reach is deleted in the parent":                         {decisionInput{local: regional, parent: ownCopy, owned: true}, deleteInParent},
		"an object that was deleted here is deleted in the parent":                       {decisionInput{parent: ownCopy, owned: true, deletedLocally: true}, deleteInParent},
		"an object that is missing here is not deleted in the parent":                    {decisionInput{parent: ownCopy, owned: true}, noAction},
		"a copy of another cache is left":                                                {decisionInput{local: published, parent: otherCopy, unowned: true}, conflict},
		"a copy of another cache is updated after the shard moved here":                  {decisionInput{local: published, parent: otherCopy, owned: true}, updateInParent},
		"a copy of another cache is created here":                                        {decisionInput{parent: otherCopy}, createLocal},
		"an object of a shard of the parent is created here":                             {decisionInput{parent: direct}, createLocal},
		"a regional object of the parent is not created here":                            {decisionInput{parent: regional}, noAction},
		"an object that was deleted after its shard moved here is deleted in the parent": {decisionInput{parent: otherCopy, owned: true, deletedLocally: true}, deleteInParent},
		"an object that its moved shard may not have published is created here":          {decisionInput{parent: otherCopy, owned: true}, createLocal},
		"an equal copy of the parent is left":                                            {decisionInput{local: parentCopy, parent: otherCopy}, noAction},
		"a copy of the parent is never created in the parent":                            {decisionInput{local: parentCopy, unowned: true}, noAction},
		"an object changed in the parent is updated here":                                {decisionInput{local: parentCopy, parent: with(otherCopy, two)}, updateLocal},
		"a copy whose original was deleted is deleted here":                              {decisionInput{local: parentCopy, deletedInParent: true}, deleteLocal},
		"a copy whose original is missing is kept":                                       {decisionInput{local: parentCopy}, noAction},
		"a copy whose original lost its reach is deleted here":                           {decisionInput{local: parentCopy, parent: regional}, deleteLocal},
		"an object that a shard left when it moved away is replaced":                     {decisionInput{local: with(published, two), parent: otherCopy}, updateLocal},
		"an object that a shard left and deleted is deleted here":                        {decisionInput{local: published, deletedInParent: true}, deleteLocal},
		"an object of a moving shard is a conflict":                                      {decisionInput{local: with(published, two), parent: otherCopy, moving: true}, conflict},
		"an object of a moving shard that the parent lacks is a conflict":                {decisionInput{local: published, deletedInParent: true, moving: true}, conflict},
		"an object of a moving shard in the parent is created here":                      {decisionInput{parent: otherCopy, moving: true}, createLocal},
		"an object without a copy in the parent is kept":                                 {decisionInput{local: published}, noAction},
		"a copy of an own object is kept":                                                {decisionInput{local: parentCopy, parent: ownCopy, owned: true}, noAction},
		"no object needs no action":                                                      {decisionInput{}, noAction},
	} {
		t.Run(name, func(t *testing.T) {
			tc.facts.cacheName = cacheName
			if got := decide(tc.facts); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
