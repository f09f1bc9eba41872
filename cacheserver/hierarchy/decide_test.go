package hierarchy

import "testing"

func TestDecide(t *testing.T) {
	const me = "europe"
	one, two := digest{1}, digest{2}
	published := summary{exists: true, digest: one, global: true}
	regional := summary{exists: true, digest: one}
	taken := summary{exists: true, digest: one, global: true, down: true}
	mine := summary{exists: true, digest: one, global: true, via: me}
	others := summary{exists: true, digest: one, global: true, via: "asia"}
	direct := summary{exists: true, digest: one, global: true}
	with := func(c summary, d digest) summary { c.digest = d; return c }
	for name, tc := range map[string]struct {
		facts facts
		want  action
	}{
		"an object of an own shard is created in the parent":                             {facts{local: published, owned: true}, createUp},
		"an object of a shard without a report is created in the parent":                 {facts{local: published, unowned: true}, createUp},
		"a regional object is not":                                                       {facts{local: regional, owned: true}, nothing},
		"an equal copy is left":                                                          {facts{local: published, parent: mine, owned: true}, nothing},
		"a changed object is updated in the parent":                                      {facts{local: with(published, two), parent: mine, owned: true}, updateUp},
		"an object that lost its reach is deleted in the parent":                         {facts{local: regional, parent: mine, owned: true}, deleteUp},
		"an object that was deleted here is deleted in the parent":                       {facts{parent: mine, owned: true, deletedLocally: true}, deleteUp},
		"an object that is missing here is not":                                          {facts{parent: mine, owned: true}, nothing},
		"a copy of another cache is left":                                                {facts{local: published, parent: others, unowned: true}, conflict},
		"a copy of another cache is updated after the shard moved here":                  {facts{local: published, parent: others, owned: true}, updateUp},
		"a copy of another cache is created here":                                        {facts{parent: others}, createDown},
		"an object of a shard of the parent is created here":                             {facts{parent: direct}, createDown},
		"a regional object of the parent is not":                                         {facts{parent: regional}, nothing},
		"an object that was deleted after its shard moved here is deleted in the parent": {facts{parent: others, owned: true, deletedLocally: true}, deleteUp},
		"an object that its moved shard may not have published is created here":          {facts{parent: others, owned: true}, createDown},
		"an equal copy of the parent is left":                                            {facts{local: taken, parent: others}, nothing},
		"a copy of the parent is never created in the parent":                            {facts{local: taken, unowned: true}, nothing},
		"an object changed in the parent is updated here":                                {facts{local: taken, parent: with(others, two)}, updateDown},
		"a copy whose original was deleted is deleted here":                              {facts{local: taken, deletedInParent: true}, deleteDown},
		"a copy whose original is missing stays":                                         {facts{local: taken}, nothing},
		"a copy whose original lost its reach is deleted here":                           {facts{local: taken, parent: regional}, deleteDown},
		"an object that a shard left when it moved away is replaced":                     {facts{local: with(published, two), parent: others}, updateDown},
		"an object that a shard left and deleted is deleted here":                        {facts{local: published, deletedInParent: true}, deleteDown},
		"an object of a moving shard is a conflict":                                      {facts{local: with(published, two), parent: others, moving: true}, conflict},
		"an object of a moving shard that the parent lacks is a conflict":                {facts{local: published, deletedInParent: true, moving: true}, conflict},
		"an object of a moving shard in the parent is created here":                      {facts{parent: others, moving: true}, createDown},
		"an object without a copy in the parent stays":                                   {facts{local: published}, nothing},
		"a copy of an own object is left to its shard":                                   {facts{local: taken, parent: mine, owned: true}, nothing},
		"no object needs no action":                                                      {facts{}, nothing},
	} {
		t.Run(name, func(t *testing.T) {
			tc.facts.me = me
			if got := decide(tc.facts); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
