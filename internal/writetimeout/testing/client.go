// Package testing contains an HTTP/2 client that sends requests and does not read their responses.
package testing

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Client is an HTTP/2 connection whose streams have a closed flow-control window: servers can send headers, but no body
// of a response. It is safe for concurrent use.
type Client struct {
	conn      net.Conn
	authority string

	mu      sync.Mutex
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
	next    uint32

	// counts are by stream.
	statuses     map[uint32]string
	ended, reset map[uint32]bool
	closed       chan struct{}
}

// Dial connects to an address and opens the window of each stream to the given number of bytes once.
func Dial(ctx context.Context, address string, config *tls.Config, window uint32) (*Client, error) {
	config = config.Clone()
	config.NextProtos = []string{http2.NextProtoTLS}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &Client{
		conn: conn, authority: address, next: 1, framer: http2.NewFramer(conn, conn),
		statuses: map[uint32]string{}, ended: map[uint32]bool{}, reset: map[uint32]bool{}, closed: make(chan struct{}),
	}
	c.encoder = hpack.NewEncoder(&c.block)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return nil, err
	}
	err = c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	if err != nil {
		return nil, err
	}
	go c.read()
	return c, nil
}

// Get sends a GET request for a path, with further headers as pairs of name and value.
func (c *Client) Get(path string, header ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.block.Reset()
	fields := append([]string{":method", "GET", ":scheme", "https", ":authority", c.authority, ":path", path}, header...)
	for i := 0; i < len(fields); i += 2 {
		if err := c.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return err
		}
	}
	stream := c.next
	c.next += 2
	return c.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: c.block.Bytes(), EndStream: true, EndHeaders: true,
	})
}

// Count is the number of streams in each state.
type Count struct {
	// Status contains the number of responses whose headers have arrived, by status.
	Status map[string]int
	// Reset is the number of streams that the server has reset, Open the number of those that it has neither ended nor reset.
	Reset, Open int
}

// Count returns the current states.
func (c *Client) Count() Count {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := Count{Status: map[string]int{}, Reset: len(c.reset), Open: int(c.next/2) - len(c.ended)}
	for _, status := range c.statuses {
		count.Status[status]++
	}
	return count
}

// Closed is closed when the connection has ended.
func (c *Client) Closed() <-chan struct{} { return c.closed }

// Close closes the connection.
func (c *Client) Close() {
	_ = c.conn.Close()
	<-c.closed
}

func (c *Client) read() {
	defer close(c.closed)
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			return
		}
		c.process(frame)
	}
}

func (c *Client) process(frame http2.Frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stream := frame.Header().StreamID
	switch frame := frame.(type) {
	case *http2.SettingsFrame:
		if !frame.IsAck() {
			_ = c.framer.WriteSettingsAck() // the next read reports a broken connection
		}
	case *http2.PingFrame:
		if !frame.IsAck() {
			_ = c.framer.WritePing(true, frame.Data)
		}
	case *http2.MetaHeadersFrame:
		c.statuses[stream] = frame.PseudoValue("status")
		if frame.StreamEnded() {
			c.ended[stream] = true
		}
	case *http2.DataFrame:
		if frame.StreamEnded() {
			c.ended[stream] = true
		}
	case *http2.RSTStreamFrame:
		c.ended[stream], c.reset[stream] = true, true
	}
}
