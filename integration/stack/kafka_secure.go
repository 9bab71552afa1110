package stack

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// secureListener is for those who have to say who they are. The plain one stays, for whoever sets the cluster up: by that
// one everybody is the super user.
const secureListener = "SECURE"

// secureProperties has a node take clients with certificates of the authority, by SASL, and allow nothing but what an ACL
// allows.
func (n *kafkaNode) secureProperties(a *Authority) (map[string]string, error) {
	own, err := a.Issue(fmt.Sprintf("kafka-%d", n.id))
	if err != nil {
		return nil, fmt.Errorf("issue a certificate: %w", err)
	}
	properties := map[string]string{
		"inter.broker.listener.name":     "PLAINTEXT",
		"authorizer.class.name":          "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"allow.everyone.if.no.acl.found": "false",
		"super.users":                    "User:ANONYMOUS",
	}
	const scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	for name, value := range map[string]string{
		"ssl.keystore.type":              "PEM",
		"ssl.keystore.location":          own.Both,
		"ssl.truststore.type":            "PEM",
		"ssl.truststore.location":        a.CA(),
		"ssl.client.auth":                "required",
		"sasl.enabled.mechanisms":        "SCRAM-SHA-256,SCRAM-SHA-512",
		"scram-sha-256.sasl.jaas.config": scram,
		"scram-sha-512.sasl.jaas.config": scram,
	} {
		properties["listener.name.secure."+name] = value // in lower case, whatever the listener's name is in
	}
	return properties, nil
}

// addSecure adds the listener to what a node has.
func (n *kafkaNode) addSecure(properties map[string]string) error {
	if n.authority == nil {
		return nil
	}
	more, err := n.secureProperties(n.authority)
	if err != nil {
		return err
	}
	properties["listeners"] += "," + secureListener + "://" + n.secure.address()
	properties["listener.security.protocol.map"] += "," + secureListener + ":SASL_SSL"
	maps.Copy(properties, more)
	return nil
}

// Secure are the addresses of the listeners that ask who is there, of a cluster that was started with Secure.
func (k *Kafka) Secure() []string {
	var addresses []string
	for _, n := range k.nodes {
		if n.authority != nil {
			addresses = append(addresses, n.secure.address())
		}
	}
	return addresses
}

// AddUsers makes users for SCRAM-SHA-512 by their passwords. It takes a moment until they can log in.
func (k *Kafka) AddUsers(ctx context.Context, passwords map[string]string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...), kgo.DisableClientMetrics())
	if err != nil {
		return fmt.Errorf("add users: %w", err)
	}
	defer client.Close()
	var users []kadm.UpsertSCRAM
	for name, password := range passwords {
		users = append(users, kadm.UpsertSCRAM{User: name, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: password})
	}
	altered, err := kadm.NewClient(client).AlterUserSCRAMs(ctx, nil, users)
	if err := errors.Join(err, altered.Error()); err != nil {
		return fmt.Errorf("add users: %w", err)
	}
	return nil
}
