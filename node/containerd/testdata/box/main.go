// Box is what the tests run in containers: a program that prints, reads, waits and ends as its arguments say.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	args := os.Args[1:]
	for len(args) > 0 {
		word, rest := args[0], args[1:]
		switch word {
		case "print":
			fmt.Println(rest[0])
			rest = rest[1:]
		case "error":
			fmt.Fprintln(os.Stderr, rest[0])
			rest = rest[1:]
		case "cat":
			_, _ = io.Copy(os.Stdout, os.Stdin)
		case "sleep":
			pause, _ := time.ParseDuration(rest[0])
			time.Sleep(pause)
			rest = rest[1:]
		case "listen":
			listener, err := net.Listen("tcp", rest[0])
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					go func() {
						defer conn.Close()
						_, _ = io.Copy(conn, conn)
					}()
				}
			}()
			rest = rest[1:]
		case "wait":
			signals := make(chan os.Signal, 1)
			signal.Notify(signals, syscall.SIGTERM)
			<-signals
		case "exit":
			code, _ := strconv.Atoi(rest[0])
			os.Exit(code)
		}
		args = rest
	}
}
