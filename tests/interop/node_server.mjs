// A server of gRPC with nothing but Node's own HTTP/2; ends when its standard input does.
// It prints its port, and answers by the last part of the path:
//   Echo     each message comes back as it comes
//   Fail     trailers only: NOT_FOUND, with words and metadata
//   Late     fails after the first message has come back
//   Early    an informational answer comes first
//   Reset    the stream is reset
//   Sleep    nothing comes back
//   Leave    the session is closed behind the answer

import http2 from "node:http2";

const HEAD = { ":status": 200, "content-type": "application/grpc" };
const FAILED = { "grpc-status": "5", "grpc-message": "Gr%C3%BC%C3%9Fe", "x-why": "because" };

function answer(stream, trailers) {
  stream.respond(HEAD, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers(trailers));
}

const methods = {
  Echo(stream) {
    answer(stream, { "grpc-status": "0" });
    stream.pipe(stream);
  },
  Fail(stream) {
    stream.respond({ ...HEAD, ...FAILED }, { endStream: true });
  },
  Late(stream) {
    answer(stream, FAILED);
    stream.once("data", (piece) => stream.end(piece));
  },
  Early(stream) {
    stream.additionalHeaders({ ":status": 103, link: "</x>" });
    methods.Echo(stream);
  },
  Reset(stream) {
    stream.close(http2.constants.NGHTTP2_CANCEL);
  },
  Sleep() {},
  Leave(stream) {
    methods.Echo(stream);
    stream.session.close();
  },
};

const server = http2.createServer();
const sessions = new Set();
server.on("session", (session) => sessions.add(session));
server.on("stream", (stream, fields) => {
  stream.on("error", () => {});
  methods[fields[":path"].split("/").pop()](stream);
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
