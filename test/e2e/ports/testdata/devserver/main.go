// Command devserver is what a developer runs in a sandbox: a page whose script talks to its server by WebSocket. It says a word of
// its own once it listens, a new one at each start, and nobody hears that word from it but by WebSocket.
package main

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/coder/websocket"
)

const page = `<!DOCTYPE html>
<title>dev server</title>
<ol id="heard"></ol>
<script>
const socket = new WebSocket("ws://" + location.host + "/socket");
const say = text => {
	const line = document.createElement("li");
	line.textContent = text;
	document.getElementById("heard").append(line);
};
const end = text => {
	say(text);
	document.body.id = "ended";
};
socket.onmessage = message => {
	say(message.data);
	if (message.data.startsWith("ask")) socket.send("page " + message.data.slice(4));
};
socket.onclose = closing => end("closed " + closing.code);
</script>
`

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "devserver:", err)
		os.Exit(1)
	}
}

func serve() error {
	word := rand.Text()
	listener, err := net.Listen("tcp", "127.0.0.1:8080")
	if err != nil {
		return err
	}
	fmt.Println(word)
	http.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, page)
	})
	http.HandleFunc("/socket", func(w http.ResponseWriter, r *http.Request) {
		socket, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer socket.CloseNow()
		for _, name := range []string{"one", "two"} {
			if socket.Write(r.Context(), websocket.MessageText, []byte("ask "+name)) != nil {
				return
			}
			_, answer, err := socket.Read(r.Context())
			if err != nil || socket.Write(r.Context(), websocket.MessageText, fmt.Appendf(nil, "%s heard %s", word, answer)) != nil {
				return
			}
		}
		socket.Close(websocket.StatusNormalClosure, "")
	})
	return http.Serve(listener, nil)
}
