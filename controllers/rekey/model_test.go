package rekey

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestModel checks the rule of the package in a model of an installation, at every moment of many random courses. In it, reconciles read
// outdated caches, stop between any two writes, and write late what they have decided; pods read files late; old pods serve on for a while.
func TestModel(t *testing.T) {
	const courses = 60
	ended := 0
	for seed := range uint64(courses) {
		m := newModel(seed)
		m.run(t, seed)
		if m.ended() {
			ended++
		}
	}
	if ended != courses {
		t.Errorf("both re-keyings have ended in %d of %d courses", ended, courses)
	}
}

// TestModelOfLostRecords: the record is lost at every moment, and the user wants a higher generation at that moment.
func TestModelOfLostRecords(t *testing.T) {
	const courses = 120
	lost, retired := map[string]int{}, 0
	for seed := range uint64(courses) {
		m := newModel(seed)
		m.loses = true
		m.run(t, seed)
		for phase, count := range m.lost {
			lost[phase] += count
		}
		retired += int(m.wanted.Retire)
	}
	if retired < courses {
		t.Errorf("%d generations were retired", retired)
	}
	for _, phase := range []string{string(Stable), string(TrustBoth), string(Issue), string(Retire)} {
		if lost[phase] < courses/4 {
			t.Errorf("the record was lost in the phases %v", lost)
		}
	}
}

// TestModelOfTokens is the model of the keys of service account tokens: pods read what they accept and sign with once, when they start, and
// tokens of the previous key are in use until the user confirms that they are not. In half of the courses the record is lost again and again.
func TestModelOfTokens(t *testing.T) {
	const courses = 60
	ended, lost := 0, 0
	for seed := range uint64(courses) {
		m := newModel(seed)
		m.tokens, m.loses = true, seed%2 == 1
		m.run(t, seed)
		if m.ended() {
			ended++
		}
		lost += len(m.lost)
	}
	if ended < courses/2 || lost < courses {
		t.Errorf("both re-keyings have ended in %d of %d courses; the record was lost in %d phases", ended, courses, lost)
	}
}

// TestModelFindsMistakes: without the holds, the model finds a moment at which a server refuses a certificate in use.
func TestModelFindsMistakes(t *testing.T) {
	for seed := range uint64(60) {
		m := newModel(seed)
		m.haste = true
		for range 3000 {
			if m.tick(); m.check() != "" {
				return
			}
		}
	}
	t.Error("the model accepts a re-keying without holds")
}

const (
	step        = 5 * time.Second
	cacheLag    = 30 * time.Second // of caches, and of reconciles between their writes
	kubeletLag  = time.Minute      // until a file of a pod has the content of its Secret
	termination = 70 * time.Second // of pods
	reload      = 5 * time.Minute  // until a client reads its certificate again
)

// history is a value over time.
type history[T any] struct {
	clock  *time.Time
	times  []time.Time
	values []T
}

func (h *history[T]) set(value T) {
	h.times, h.values = append(h.times, *h.clock), append(h.values, value)
}
func (h *history[T]) now() T { return h.values[len(h.values)-1] }

// at is the value some time ago.
func (h *history[T]) at(ago time.Duration) T {
	at := h.clock.Add(-ago)
	for i := len(h.times) - 1; i > 0; i-- {
		if !h.times[i].After(at) {
			return h.values[i]
		}
	}
	return h.values[0]
}

// pod is a process with what it has read.
type pod struct {
	template State
	trusts   []int32
	has      int32
	until    time.Time // end of its termination; zero while it is current
}

type server struct {
	bundle   history[[]int32] // in its Secret
	leaf     history[int32]   // generation of the certificate in its Secret
	template history[State]   // of which the annotation of the pods is made
	pods     history[pod]
	old      []pod
	issuer   history[int32] // that its Certificate names
	pending  *reconcile
}

// reconcile is one reconcile of a server between its writes.
type reconcile struct {
	record State
	wrote  bool
}

type model struct {
	random  *rand.Rand
	now     time.Time
	haste   bool
	wanted  Wanted
	record  history[State]
	servers []*server
	laptop  int32 // generation of a kubeconfig of which the operator does not know
	secrets history[[]int32]
	loses   bool
	tokens  bool           // the model is of keys that sign tokens
	lost    map[string]int // by phase
	pending *struct {
		seen State
		next State
	}
}

// run lets a course take its steps, and fails at the first that breaks the rule.
func (m *model) run(t *testing.T, seed uint64) {
	t.Helper()
	const ticks = 3000
	for range ticks {
		m.tick()
		if broken := m.check(); broken != "" {
			t.Fatalf("seed %d at %s in %+v: %s", seed, m.now.Sub(noon), m.record.now(), broken)
		}
	}
}

// ended reports whether both re-keyings of a course have ended.
func (m *model) ended() bool {
	state := m.record.now()
	return state.Phase == Stable && state.Generation == 3
}

func newModel(seed uint64) *model {
	m := &model{random: rand.New(rand.NewPCG(seed, 1)), now: noon, wanted: Wanted{Generation: 2}, laptop: 1}
	first := State{Phase: Stable, Generation: 1}
	m.record = history[State]{clock: &m.now}
	m.record.set(first)
	m.secrets, m.lost = history[[]int32]{clock: &m.now}, map[string]int{}
	m.secrets.set([]int32{1})
	for range 3 {
		s := &server{issuer: history[int32]{clock: &m.now}, bundle: history[[]int32]{clock: &m.now}, leaf: history[int32]{clock: &m.now}, template: history[State]{clock: &m.now}, pods: history[pod]{clock: &m.now}}
		s.bundle.set([]int32{1})
		s.issuer.set(1)
		s.leaf.set(1)
		s.template.set(first)
		s.pods.set(pod{first, []int32{1}, 1, time.Time{}})
		m.servers = append(m.servers, s)
	}
	return m
}

// trustOf and signerOf are what servers render from a record.
func trustOf(s State) []int32 {
	switch s.Phase {
	case Stable:
		return []int32{s.Generation}
	case "":
		return nil
	case Retire:
		return []int32{s.Next}
	}
	return []int32{s.Generation, s.Next}
}

func signerOf(s State) int32 {
	if s.Phase == Issue || s.Phase == Retire {
		return s.Next
	}
	return s.Generation
}

func sameTrust(a, b State) bool {
	return slices.Equal(trustOf(a), trustOf(b)) && signerOf(a) == signerOf(b)
}

func (m *model) chance(percent int) bool { return m.random.IntN(100) < percent }
func (m *model) lag(limit time.Duration) time.Duration {
	return time.Duration(m.random.Int64N(int64(limit)))
}

func (m *model) tick() {
	m.now = m.now.Add(step)
	for _, s := range m.servers {
		m.tickServer(s)
	}
	m.tickSecrets()
	m.tickRecord()
	if m.loses && m.record.now().Phase != "" && m.random.IntN(150) == 0 {
		m.lost[string(m.record.now().Phase)]++
		m.record.set(State{})
		m.wanted.Generation++
	}
	// The user replaces the last old kubeconfig some time after new ones exist, and confirms it.
	if m.record.now().Phase == Issue && m.chance(2) {
		m.laptop, m.wanted.Retire = m.record.now().Next, m.record.now().Generation
	}
	if m.record.now().Phase == Stable && m.record.now().Generation == 2 && m.chance(1) {
		m.wanted.Generation = 3
	}
}

// tickRecord is the reconcile of the RootShard: it reads, and writes if nobody has written in between.
func (m *model) tickRecord() {
	if p := m.pending; p != nil {
		m.pending = nil
		if p.seen == m.record.now() && !m.chance(20) { // killed in between
			m.record.set(p.next)
		}
		return
	}
	if !m.chance(50) {
		return
	}
	seen := m.record.at(m.lag(cacheLag))
	if seen.Phase == "" {
		found, ok := Find(m.wanted.Generation, m.secrets.at(m.lag(cacheLag)), m.issuing())
		if ok {
			m.pending = &struct{ seen, next State }{seen, found}
		} else if m.chance(2) {
			m.deleteUnused()
		}
		return
	}
	next := Decide(seen, m.wanted, m.missing(seen), m.now)
	if m.haste && !next.ReadySince.IsZero() {
		next.ReadySince = noon.Add(-time.Hour)
	}
	if next != seen {
		m.pending = &struct{ seen, next State }{seen, next}
	}
}

// issuing is the generation that is known to issue without the record: of the operator's own certificate, or the one that pods sign with.
func (m *model) issuing() int32 {
	if m.tokens {
		return signerOf(m.servers[0].template.at(m.lag(cacheLag)))
	}
	return m.servers[0].issuer.at(m.lag(cacheLag))
}

// tickSecrets makes the Secrets of the generations that are trusted, and deletes that of the previous one when no server trusts it.
func (m *model) tickSecrets() {
	if !m.chance(20) {
		return
	}
	seen := m.record.at(m.lag(cacheLag))
	secrets := slices.Clone(m.secrets.now())
	for _, generation := range trustOf(seen) {
		if !slices.Contains(secrets, generation) {
			secrets = append(secrets, generation)
		}
	}
	if seen.Phase == Retire && len(m.missingServers(seen)) == 0 {
		secrets = slices.DeleteFunc(secrets, func(generation int32) bool { return generation == seen.Generation })
	}
	m.secrets.set(secrets)
}

// deleteUnused is the user, who deletes the Secrets of the generations that the pods do not name.
func (m *model) deleteUnused() {
	m.secrets.set(slices.DeleteFunc(slices.Clone(m.secrets.now()), func(generation int32) bool {
		return !slices.ContainsFunc(m.servers, func(s *server) bool { return slices.Contains(trustOf(s.template.now()), generation) })
	}))
}

// missing is what the reconcile of the RootShard observes, from outdated caches.
func (m *model) missing(state State) []string {
	out := m.missingServers(state)
	secrets := m.secrets.at(m.lag(cacheLag))
	if state.Next != 0 && !slices.Contains(secrets, state.Next) || state.Phase == Retire && slices.Contains(secrets, state.Generation) {
		out = append(out, "a Secret")
	}
	return out
}

func (m *model) missingServers(state State) []string {
	var out []string
	for i, s := range m.servers {
		lag := m.lag(cacheLag)
		switch {
		case !m.tokens && !slices.Equal(s.bundle.at(lag), trustOf(state)), !sameTrust(s.template.at(lag), state), !sameTrust(s.pods.at(lag).template, s.template.at(lag)):
			out = append(out, fmt.Sprintf("server %d", i))
		case !m.tokens && state.Phase == Issue && s.leaf.at(lag) != state.Next:
			out = append(out, fmt.Sprintf("certificate %d", i))
		}
	}
	return out
}

func (m *model) tickServer(s *server) {
	switch {
	case s.pending == nil && m.chance(30):
		record, secrets := m.record.at(m.lag(cacheLag)), m.secrets.at(m.lag(cacheLag))
		missing := slices.ContainsFunc(trustOf(record), func(generation int32) bool { return !slices.Contains(secrets, generation) })
		if record.Phase != "" && !missing { // else the reconcile waits
			s.pending = &reconcile{record: record}
		}
	case s.pending != nil && m.chance(5): // killed
		s.pending = nil
	case s.pending != nil && !s.pending.wrote && m.chance(60):
		s.bundle.set(trustOf(s.pending.record))
		s.issuer.set(signerOf(s.pending.record))
		s.pending.wrote = true
	case s.pending != nil && s.pending.wrote && m.chance(60):
		issued := m.tokens || s.leaf.now() == s.issuer.now() && s.issuer.now() == signerOf(s.pending.record)
		if issued && !sameTrust(s.template.now(), s.pending.record) {
			s.template.set(s.pending.record)
		}
		s.pending = nil
	}
	if issuer := s.issuer.now(); s.leaf.now() != issuer && m.chance(30) {
		s.leaf.set(issuer)
	}
	pods := s.pods.now()
	if !sameTrust(pods.template, s.template.now()) && m.chance(20) {
		pods.until = m.now.Add(termination)
		s.old = append(s.old, pods)
		next := pod{s.template.now(), s.bundle.at(m.lag(kubeletLag)), s.leaf.at(m.lag(kubeletLag)), time.Time{}}
		if m.tokens { // each key is a file of its own
			next.trusts, next.has = trustOf(next.template), signerOf(next.template)
		}
		s.pods.set(next)
	} else if m.tokens {
		s.pods.set(pods)
	} else if m.chance(20) || !slices.Equal(pods.trusts, s.bundle.at(kubeletLag)) || pods.has != s.leaf.at(kubeletLag+reload) {
		pods.trusts, pods.has = s.bundle.at(m.lag(kubeletLag)), s.leaf.at(m.lag(kubeletLag+reload))
		s.pods.set(pods)
	}
	s.old = slices.DeleteFunc(s.old, func(p pod) bool { return p.until.Before(m.now) })
}

// check returns which process refuses which certificate in use, or "".
func (m *model) check() string {
	used := map[int32]string{m.laptop: "a kubeconfig"}
	for i, s := range m.servers {
		if !m.tokens {
			used[s.leaf.now()] = fmt.Sprintf("the Secret of server %d", i)
		}
		for _, p := range append(s.old, s.pods.now()) {
			used[p.has] = fmt.Sprintf("a pod of server %d", i)
		}
	}
	for i, s := range m.servers {
		for _, p := range append(s.old, s.pods.now()) {
			for generation, who := range used {
				if !slices.Contains(p.trusts, generation) {
					return fmt.Sprintf("a pod of server %d trusts %v, and %s has %d", i, p.trusts, who, generation)
				}
			}
		}
	}
	return ""
}
