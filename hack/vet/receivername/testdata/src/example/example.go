package example

type shardServer struct{}

func (s *shardServer) first()     {}
func (ss *shardServer) initials() {}
func (srv *shardServer) other()   {} // want `receiver srv of type shardServer`
func (server *shardServer) word() {}
func (c shardServer) former()     {} // want `receiver c of type shardServer`
func (_ shardServer) unused()     {}
func (shardServer) unnamed()      {}

type APIServer[T any] struct{}

func (a APIServer[T]) first()    {}
func (s *APIServer[T]) second()  {}
func (t *APIServer[T]) neither() {} // want `receiver t of type APIServer`

type pairs[K, V any] map[string]struct{}

func (p pairs[K, V]) first() {}
func (m pairs[K, V]) kind()  {} // want `receiver m of type pairs`
