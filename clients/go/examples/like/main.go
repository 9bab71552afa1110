// Command like likes a post over HTTP and by Kafka, reads its counts and follows their changes until the first one.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"kudos/clients/go"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := &kudos.Client{
		ProducerURL: cmp.Or(os.Getenv("PRODUCER_URL"), "http://127.0.0.1:8080"),
		ReaderURL:   cmp.Or(os.Getenv("READER_URL"), "http://127.0.0.1:8081"),
	}
	producer, err := kudos.NewProducer(strings.Split(cmp.Or(os.Getenv("BROKERS"), "127.0.0.1:9092"), ","), nil)
	if err != nil {
		return err
	}
	defer producer.Close(ctx)
	post := uint64(time.Now().UnixMilli()) // without likes so far

	byHTTP, err := client.Like(ctx, post, 7)
	if err != nil {
		return err
	}
	fmt.Printf("user 7 likes post %d: position %s\n", post, byHTTP)
	byKafka, err := producer.Send(ctx, kudos.Event{PostID: post, UserID: 8, Action: kudos.Like, Region: "DE"})
	if err != nil {
		return err
	}
	fmt.Printf("user 8 likes post %d: position %s\n", post, byKafka)

	counts, err := client.Count(ctx, post, byHTTP, byKafka) // as of both
	if err != nil {
		return err
	}
	fmt.Printf("post %d has %d likes\n", post, counts.Likes)

	for counts, err := range client.Stream(ctx, post) {
		if err != nil {
			return err
		}
		fmt.Printf("stream: %d likes\n", counts.Likes)
		if counts.Likes == 1 {
			break
		}
		if _, err := client.Unlike(ctx, post, 7); err != nil {
			return err
		}
	}
	return nil
}
