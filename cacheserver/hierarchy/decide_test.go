package hierarchy

import "testing"

func TestDecide(t *testing.T) {
	const me = "europe"
	one, two := digest{1}, digest{2}
	published := copied{exists: true, digest: one, global: true}
	regional := copied{exists: true, digest: one}
	taken := copied{exists: true, digest: one, global: true, down: true}
	mine := copied{exists: true, digest: one, global: true, via: me}
	others := copied{exists: true, digest: one, global: true, via: "asia"}
	direct := copied{exists: true, digest: one, global: true}
	with := func(c copied, d digest) copied { c.digest = d; return c }
	for name, tc := range map[string]struct {
		facts facts
		want  action
	}{
		"what a shard of ours publishes goes up":                              {facts{here: published, owned: true}, createUp},
		"also before its report":                                              {facts{here: published, unowned: true}, createUp},
		"what stays in the region does not":                                   {facts{here: regional, owned: true}, nothing},
		"what is up already is done":                                          {facts{here: published, above: mine, owned: true}, nothing},
		"what has changed goes up again":                                      {facts{here: with(published, two), above: mine, owned: true}, updateUp},
		"what does not travel any more is taken back":                         {facts{here: regional, above: mine, owned: true}, deleteUp},
		"what has ended here ends above":                                      {facts{above: mine, owned: true, goneHere: true}, deleteUp},
		"what is missing here may not have ended":                             {facts{above: mine, owned: true}, nothing},
		"what another cache has brought up is not touched":                    {facts{here: published, above: others, unowned: true}, contested},
		"a shard that came to us takes its objects along":                     {facts{here: published, above: others, owned: true}, updateUp},
		"what comes from elsewhere is taken down":                             {facts{above: others}, createDown},
		"what shards publish above is taken down":                             {facts{above: direct}, createDown},
		"what is regional above is not":                                       {facts{above: regional}, nothing},
		"what a shard that came to us ended here ends above":                  {facts{above: others, owned: true, goneHere: true}, deleteUp},
		"what it may not have looked at yet is taken down":                    {facts{above: others, owned: true}, createDown},
		"what was taken down is done":                                         {facts{here: taken, above: others}, nothing},
		"it is never brought up again":                                        {facts{here: taken, unowned: true}, nothing},
		"what has changed above changes here":                                 {facts{here: taken, above: with(others, two)}, updateDown},
		"what was taken down and has ended above ends here":                   {facts{here: taken, goneAbove: true}, deleteDown},
		"what was taken down and is missing above stays":                      {facts{here: taken}, nothing},
		"what does not travel any more ends here":                             {facts{here: taken, above: regional}, deleteDown},
		"what a shard left here when it moved is replaced":                    {facts{here: with(published, two), above: others}, updateDown},
		"what a shard left here and has no more ends":                         {facts{here: published, goneAbove: true}, deleteDown},
		"what a shard publishes here that may have moved to us is left to it": {facts{here: with(published, two), above: others, arriving: true}, contested},
		"also if nobody else has it":                                          {facts{here: published, goneAbove: true, arriving: true}, contested},
		"what such a shard has elsewhere is taken down":                       {facts{above: others, arriving: true}, createDown},
		"what a shard left here stays while it may come":                      {facts{here: published}, nothing},
		"a copy of what is ours by now is left to its shard":                  {facts{here: taken, above: mine, owned: true}, nothing},
		"nothing is nothing":                                                  {facts{}, nothing},
	} {
		t.Run(name, func(t *testing.T) {
			tc.facts.me = me
			if got := decide(tc.facts); got != tc.want {
				t.Errorf("to do is %q, want %q", got, tc.want)
			}
		})
	}
}
