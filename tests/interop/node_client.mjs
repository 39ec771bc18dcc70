// Calls of gRPC, and requests for pages, with nothing but Node's own HTTP/2.
// node node_client.mjs http://127.0.0.1:PORT    prints what has come back, as JSON

import http2 from "node:http2";

const session = http2.connect(process.argv[2]);
session.on("error", (error) => {
  console.error(error);
  process.exit(1);
});

function framed(message) {
  const octets = Buffer.from(message);
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(octets.length, 1);
  return Buffer.concat([prefix, octets]);
}

function unframed(body) {
  const messages = [];
  let at = 0;
  while (at < body.length) {
    const end = at + 5 + body.readUInt32BE(at + 1);
    messages.push(body.subarray(at + 5, end).toString());
    at = end;
  }
  return messages;
}

function request(head, options, begin) {
  return new Promise((resolve, reject) => {
    const stream = session.request(head, options);
    const pieces = [];
    const result = { head: {}, trailers: {} };
    stream.on("response", (fields) => (result.head = { ...fields }));
    stream.on("trailers", (fields) => (result.trailers = { ...fields }));
    stream.on("data", (piece) => pieces.push(piece));
    stream.on("error", reject);
    stream.on("close", () => {
      result.body = Buffer.concat(pieces);
      result.code = stream.rstCode;
      resolve(result);
    });
    begin?.(stream);
  });
}

async function call(path, messages, more = {}) {
  const head = {
    ":method": "POST",
    ":path": path,
    "content-type": "application/grpc",
    te: "trailers",
    ...more,
  };
  const { body, ...rest } = await request(head, {}, (stream) => {
    for (const message of messages) stream.write(framed(message));
    stream.end();
  });
  const said = { ...rest.head, ...rest.trailers };
  return {
    answers: unframed(body),
    status: Number(said["grpc-status"]),
    message: decodeURIComponent(said["grpc-message"] ?? ""),
    text: said["x-text"] ?? null,
    code: rest.code,
  };
}

async function page(method, path) {
  const head = { ":method": method, ":path": path };
  const { body, head: fields, code } = await request(head, { endStream: true });
  return { status: fields[":status"], body: body.toString(), code };
}

const failing = JSON.stringify({ status: 5, message: "Grüße ☃", after: 2 });
const results = {
  echo: await call("/demo.Demo/Echo", ["hello"]),
  empty: await call("/demo.Demo/Later", [""]),
  count: await call("/demo.Demo/Count", ["3 0"]),
  sum: await call("/demo.Demo/Sum", ["1", "2", "3"]),
  chat: await call("/demo.Demo/Chat", ["a", "b", "c"]),
  fail: await call("/demo.Demo/FailManyToMany", [failing]),
  metadata: await call("/demo.Demo/Metadata", ["!"], { "x-text": "said" }),
  timeout: await call("/demo.Demo/SleepOneToOne", ["!"], { "grpc-timeout": "50m" }),
  unknown: await call("/no.Such/Method", ["!"]),
  health: await page("GET", "/health"),
  head: await page("HEAD", "/health"),
  nothing: await page("GET", "/nothing"),
};
const long = "x".repeat(1_000_000);
const longs = await call("/demo.Demo/Chat", [long, long, long, long]);
results.longs = longs.answers.length === 4 && longs.answers.every((each) => each === long);
const crowd = Array.from({ length: 500 }, (_, index) => call("/demo.Demo/Later", [`${index}`]));
results.crowd = (await Promise.all(crowd)).map((each) => each.answers[0]);

session.close(() => console.log(JSON.stringify(results)));
