package cluster

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync/atomic"
	"time"
)

// renewalRetry is how long a node waits after a server that could not be asked for a certificate.
const renewalRetry = 10 * time.Minute

// renewing keeps the certificate of a joined node valid.
type renewing struct {
	// ask asks for another identity in place of one.
	ask     func(context.Context, *identity) (*identity, error)
	current atomic.Pointer[identity]
}

func (r *renewing) forServer(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return &r.current.Load().cert, nil
}

func (r *renewing) forClient(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return &r.current.Load().cert, nil
}

// run renews the certificate once a third of its time is left, and calls renewed then. It looks once a day, because a timer
// stands still while the machine sleeps.
func (r *renewing) run(ctx context.Context, log *slog.Logger, renewed func()) error {
	for {
		leaf := r.current.Load().cert.Leaf
		wait := time.Until(leaf.NotAfter.Add(-leaf.NotAfter.Sub(leaf.NotBefore) / 3))
		if wait <= 0 {
			id, err := r.ask(ctx, r.current.Load())
			if err == nil {
				r.current.Store(id)
				log.Info("certificate renewed", "until", id.cert.Leaf.NotAfter)
				renewed()
				continue
			}
			log.Warn("certificate not renewed", "until", leaf.NotAfter, "err", err)
			wait = renewalRetry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(wait, 24*time.Hour)):
		}
	}
}
