// What users of Node's etcd3 do, one line for each outcome. Run where that package is installed.
'use strict';
const { createRequire } = require('node:module');
const { Etcd3, EtcdLockFailedError, GRPCGenericError } = createRequire(`${process.cwd()}/`)('etcd3');

const [host, port] = process.argv.slice(2);
const hosts = `http://${host}:${port}`;
const WAIT_MS = 20000;

function tell(what, ...outcome) {
  console.log([what, ...outcome.map((each) => JSON.stringify(each) ?? 'undefined')].join(': '));
}

function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took too long`)), WAIT_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function next(emitter, event) {
  return within(new Promise((resolve) => emitter.once(event, (...told) => resolve(told))), event);
}

async function keys(client) {
  await client.put('app/a').value('1');
  await client.put('app/b').value('2');
  tell('get', await client.get('app/a').string(), await client.get('app/b').number(), await client.get('none'));
  tell('all', await client.getAll().prefix('app/').strings());
  tell('sorted', await client.getAll().prefix('app/').sort('Key', 'Descend').limit(1).keys());
  tell('count', await client.getAll().prefix('app/').count(), await client.get('app/a').exists());
  tell('previous', (await client.put('app/a').value('3').getPrevious()).value.toString());
  const space = client.namespace('app/');
  tell('namespace', await space.get('a').string(), await space.getAll().keys());
  const done = await client.if('app/a', 'Value', '==', '3').then(client.put('app/a').value('4'))
    .else(client.get('app/a')).commit();
  const not = await client.if('app/a', 'Create', '==', 0).then(client.put('app/a').value('5'))
    .else(client.get('app/a')).commit();
  tell('transactions', done.succeeded, not.succeeded, not.responses[0].response_range.kvs[0].value.toString());
  await client.stm().transact((tx) => tx.get('app/b').number().then((n) => tx.put('app/b').value(n * 10)));
  tell('stm', await client.get('app/b').number());
  tell('delete', (await client.delete().prefix('app/')).deleted);
}

async function leases(client) {
  const lease = client.lease(60);
  await lease.put('leased').value('1');
  tell('lease', (await lease.keepaliveOnce()).TTL, (await client.leaseClient.leaseTimeToLive(
    { ID: await lease.grant(), keys: true })).keys.map(String));
  await lease.revoke();
  tell('revoked', await client.get('leased').string());
  const short = client.lease(2, { autoKeepAlive: false });
  const watcher = await client.watch().key('ephemeral').create();
  const gone = next(watcher, 'delete');
  await short.put('ephemeral').value('1');
  tell('expired', (await gone)[0].key.toString(), await client.get('ephemeral').string());
  await watcher.cancel();
  try {
    await client.put('x').value('y').lease('12345');
  } catch (error) {
    tell('unknown lease', error.constructor.name, error.message, error instanceof GRPCGenericError);
  }
}

async function locks(client, other) {
  const lock = client.lock('desk').ttl(30);
  await lock.acquire();
  try {
    await other.lock('desk').acquire();
  } catch (error) {
    tell('contended', error instanceof EtcdLockFailedError);
  }
  await lock.release();
  tell('in a block', await other.lock('desk').do(() => 'done'));
}

async function elections(client, other) {
  const first = client.election('post', 10).campaign('first');
  await next(first, 'elected');
  tell('leader', await other.election('post').leader());
  const second = other.election('post', 10).campaign('second');
  const takesOver = next(second, 'elected');
  await first.resign();
  await takesOver;
  tell('after it resigned', await client.election('post').leader());
  await second.resign();
}

async function watches(client) {
  const watcher = await client.watch().prefix('watched/').create();
  const heard = [];
  const three = within(new Promise((resolve) => {
    watcher.on('data', ({ events }) => {
      heard.push(...events.map(({ type, kv }) => [type, kv.key.toString(), kv.value.toString()]));
      if (heard.length === 3) resolve();
    });
  }), 'three events');
  const { header } = await client.put('watched/a').value('1');
  await client.put('watched/b').value('2');
  await client.delete().key('watched/a');
  await three;
  tell('watch', heard);
  await watcher.cancel();
  const replay = await client.watch().prefix('watched/').startRevision(header.revision).create();
  const [told] = await next(replay, 'data');
  tell('replayed', told.events.map(({ type, kv }) => [type, kv.key.toString()]));
  await replay.cancel();
}

async function main() {
  const client = new Etcd3({ hosts });
  const other = new Etcd3({ hosts });
  await keys(client);
  await leases(client);
  await locks(client, other);
  await elections(client, other);
  await watches(client);
  tell('status', (await client.maintenance.status()).version);
  tell('members', (await client.cluster.memberList({})).members.length);
  client.close();
  other.close();
  console.log('done');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
