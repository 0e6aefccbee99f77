// A stock client in Node: it does what lines of JSON on its standard input say, and answers
// each by one.
import grpc from '@grpc/grpc-js';
import xds from '@grpc/grpc-js-xds';
import readline from 'node:readline';
import { sliceKey } from './slicekey.mjs';

xds.register();
const client = new grpc.Client('xds:///' + process.argv[2], grpc.credentials.createInsecure());

// A google.protobuf.StringValue of less than 128 bytes.
const encode = (s) => Buffer.concat([Buffer.from([10, Buffer.byteLength(s)]), Buffer.from(s)]);
const decode = (b) => b.subarray(2).toString();

function call(key) {
  const metadata = new grpc.Metadata();
  metadata.set('slicer-key', key);
  metadata.set('slice-key', sliceKey(key));
  metadata.set('slice-number', BigInt('0x' + sliceKey(key)).toString());
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest('/hello.Greeter/SayHello', encode, decode, key, metadata, { deadline: Date.now() + 20000 },
      (err, reply) => (err ? reject(err) : resolve(reply)));
  });
}

let load = null;
const say = (v) => process.stdout.write(JSON.stringify(v) + '\n');

async function check(keys) {
  const tasks = [];
  for (let i = 0; i < keys; i += 50) {
    tasks.push(...await Promise.all(Array.from({ length: Math.min(50, keys - i) }, (_, k) => call('user-' + (i + k)))));
  }
  return { tasks };
}

function begin(rate) {
  const state = { calls: 0, failed: 0, errors: [], pending: new Set() };
  const began = Date.now();
  let sent = 0;
  state.timer = setInterval(() => {
    for (const due = (Date.now() - began) * rate / 1000; sent < due; sent++) {
      const c = call('user-' + Math.floor(Math.random() * 3000))
        .catch((err) => { state.failed++; if (state.errors.length < 5) state.errors.push(String(err)); })
        .finally(() => { state.calls++; state.pending.delete(c); });
      state.pending.add(c);
    }
  }, 5);
  return state;
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const what = JSON.parse(line);
  try {
    if (what.check) say(await check(what.check));
    if (what.rate) { load = begin(what.rate); say({}); }
    if (what.stop) {
      clearInterval(load.timer);
      await Promise.all(load.pending);
      say({ calls: load.calls, failed: load.failed, errors: load.errors });
    }
  } catch (err) {
    say({ error: String(err) });
  }
}
process.exit(0);
