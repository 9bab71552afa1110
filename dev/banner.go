package dev

import (
	"fmt"
	"io"
	"net"
	"strings"

	"kudos/schema"
)

// databaseName is the database that the embedded MySQL server has.
const databaseName = "kudos"

// Banner is what a person is told once all is up.
type Banner struct {
	Addresses
	// EmbeddedKafka and EmbeddedMySQL tell which servers are part of this process.
	EmbeddedKafka, EmbeddedMySQL bool
	// DataDir keeps the data of both. Empty: it ends with the process.
	DataDir string
	// Rate of simulated events per second; 0: none.
	Rate float64
}

// Print writes the banner.
func (b Banner) Print(w io.Writer) error {
	var text strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }

	line("")
	line("kudos is up.%s", b.volatile())
	line("")
	line("  dashboard  http://%s", b.Reader)
	line("")
	line("  Kafka  %-24s %s", b.Kafka, whose(b.EmbeddedKafka, "no security"))
	line("  MySQL  %-24s %s", b.MySQL, whose(b.EmbeddedMySQL, "user root, no password, database "+databaseName))
	line("  likes  http://%-17s the producer's HTTP API", b.HTTP)
	line("  reads  http://%-17s the reader's HTTP API: /openapi.yaml", b.Reader)
	line("  admin  http://%-17s /metrics, /readyz", b.Admin)
	line("")
	if b.Rate > 0 {
		line("%s simulated events arrive per second. Look on, or like something yourself:", grouped(int64(b.Rate)))
	} else {
		line("Nothing happens by itself (--simulate 2000 would). Like something:")
	}
	line("")
	line("  curl -i -X PUT 'http://%s/v1/posts/42/likes/7?region=DE'", b.HTTP)
	line("  curl http://%s/v1/posts/42/likes", b.Reader)
	line("  curl -N 'http://%s/v1/stream?post_ids=42'", b.Reader)
	line("  %s -e 'select * from like_count order by 2 desc limit 10'", b.mysqlCommand())
	line("  kcat -b %s -C -t %s -o -10 -e -f 'post %%k, %%S bytes at %%p@%%o\\n'", b.Kafka, schema.TopicUpdates)
	line("  kudos trending --brokers %s --follow", b.Kafka)
	line("  kcat -b %s -C -t %s -o -20 -e -f '%%k: %%s\\n'", b.Kafka, schema.TopicTrending)
	line("  curl -s http://%s/readyz", b.Admin)
	line("")
	_, err := io.WriteString(w, text.String())
	return err
}

// volatile says what is lost at the end.
func (b Banner) volatile() string {
	switch {
	case b.DataDir != "":
		return " It is all in this process. Ctrl-C ends it; " + b.DataDir + " keeps its data."
	case b.EmbeddedKafka && b.EmbeddedMySQL:
		return " It is all in this process, and so is its data: both end with Ctrl-C."
	case b.EmbeddedKafka:
		return " Kafka is in this process: its data ends with Ctrl-C."
	case b.EmbeddedMySQL:
		return " MySQL is in this process: its data ends with Ctrl-C."
	}
	return " Ctrl-C ends it."
}

func whose(embedded bool, how string) string {
	if embedded {
		return "embedded; " + how
	}
	return "yours"
}

func (b Banner) mysqlCommand() string {
	first, _, _ := strings.Cut(b.MySQL, ",") // of several
	host, port, err := net.SplitHostPort(first)
	if err != nil {
		host, port = first, "3306"
	}
	login := "-uroot " + databaseName
	if !b.EmbeddedMySQL {
		login = "-u… -p …"
	}
	return fmt.Sprintf("mariadb -h%s -P%s %s", host, port, login)
}
