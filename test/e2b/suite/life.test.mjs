import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import sdk, { Sandbox, create, own, patience, until } from './sdk.mjs'

const { AuthenticationError, SandboxNotFoundError, SandboxError } = sdk

async function all(paginator) {
  const found = []
  while (paginator.hasNext) found.push(...(await paginator.nextItems()))
  return found
}

describe('life', () => {
  test('create, list with pages and filters, info, kill', async () => {
    const mark = `m&=${process.pid} ${Date.now()}`
    const [a, b] = [await create({ metadata: { mark } }), await create({ metadata: { mark, b: 'yes' } })]
    const ids = async (query, more = {}) => (await all(Sandbox.list({ query: { metadata: { mark }, ...query }, ...more }))).map((s) => s.sandboxId)
    assert.deepEqual(await ids({}), [b.sandboxId, a.sandboxId])
    assert.deepEqual(await ids({}, { limit: 1 }), [b.sandboxId, a.sandboxId])
    assert.deepEqual(await ids({ state: ['paused'] }), [])
    assert.deepEqual(await ids({ metadata: { mark, b: 'yes' } }), [b.sandboxId])
    const info = await a.getInfo()
    assert.equal(info.templateId, 'base')
    assert.equal(info.state, 'running')
    assert.deepEqual(info.metadata, { mark })
    assert.ok(info.endAt > info.startedAt)
    assert.equal(await a.isRunning(), true)
    assert.equal(await b.kill(), true)
    assert.deepEqual(await ids({}), [a.sandboxId])
    assert.equal(await b.isRunning(), false)
    assert.equal(await Sandbox.kill(b.sandboxId), false)
    await assert.rejects(Sandbox.getInfo(b.sandboxId), SandboxNotFoundError)
    await assert.rejects(Sandbox.connect(b.sandboxId), SandboxNotFoundError)
  })

  test('timeout: shorter, longer, and the end', async () => {
    const box = await create({ timeoutMs: 300_000 })
    const { endAt } = await box.getInfo()
    await Sandbox.connect(box.sandboxId, { timeoutMs: 1_000 })
    assert.deepEqual((await box.getInfo()).endAt, endAt)
    await box.setTimeout(900_000)
    assert.ok((await box.getInfo()).endAt > endAt)
    await box.setTimeout(1_000)
    await until(async () => !(await box.isRunning()))
    await assert.rejects(box.setTimeout(1_000), SandboxError)
  })

  test('pause and connect: files, environment and processes stay', async () => {
    const box = await create({ envs: { KEPT: 'kept' } })
    await box.files.write('kept.txt', 'kept')
    const { pid } = await box.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
    assert.equal(await box.pause(), true)
    assert.equal(await box.pause(), false)
    assert.equal((await box.getInfo()).state, 'paused')
    assert.equal(await box.isRunning(), false)
    const again = await Sandbox.connect(box.sandboxId, patience)
    assert.equal(again.sandboxId, box.sandboxId)
    assert.equal(await again.files.read('kept.txt'), 'kept')
    assert.equal((await again.commands.run('echo $KEPT')).stdout, 'kept\n')
    assert.ok((await again.commands.list()).some((p) => p.pid === pid))
    assert.equal((await again.commands.connect(pid)).pid, pid)
    assert.equal(await again.commands.kill(pid), true)
  })

  test('the end of its time is a pause where that was asked for', async () => {
    const box = await create({ timeoutMs: 300_000, lifecycle: { onTimeout: 'pause' } })
    await box.files.write('kept.txt', 'kept')
    await box.setTimeout(1_000)
    await until(async () => (await box.getInfo()).state === 'paused')
    assert.equal(await box.isRunning(), false)
    await box.connect(patience)
    assert.equal(await box.files.read('kept.txt'), 'kept')
  })

  test('snapshots: several sandboxes of one, by id and by name', async () => {
    const box = await create()
    await box.files.write('state.txt', 'one')
    const name = `suite-${process.pid}-${Date.now()}`
    const snapshot = await box.createSnapshot({ name })
    await box.files.write('state.txt', 'two')
    const copies = [await create({}, snapshot.snapshotId), await create({}, name)]
    for (const copy of copies) assert.equal(await copy.files.read('state.txt'), 'one')
    await copies[0].files.write('state.txt', 'three')
    assert.equal(await copies[1].files.read('state.txt'), 'one')
    assert.ok((await all(Sandbox.listSnapshots({ sandboxId: box.sandboxId }))).some((s) => s.snapshotId === snapshot.snapshotId))
    for (const copy of copies) await copy.kill()
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId, patience), true)
    assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
  })

  test('fork: copies with ids and files of their own', async () => {
    if (!Sandbox.fork) return // a later generation's
    const box = await create()
    await box.files.write('state.txt', 'source')
    const forks = await box.fork({ count: 2, ...patience })
    forks.forEach(own)
    await forks[0].files.write('state.txt', 'fork')
    assert.deepEqual(await Promise.all([box, ...forks].map((b) => b.files.read('state.txt'))), ['source', 'fork', 'source'])
  })

  test('metrics', async () => {
    const box = await create()
    const [sample] = await until(async () => { const m = await box.getMetrics(); return m.length && m })
    assert.ok(sample.memTotal > 0 && sample.cpuCount > 0 && sample.memUsed > 0)
    assert.deepEqual(await box.getMetrics({ start: new Date(0), end: new Date(1000) }), [])
  })

  test('network: none is none, and what is not offered says so', async () => {
    const box = await create({ allowInternetAccess: false })
    await assert.rejects(box.commands.run('timeout 5 bash -c "</dev/tcp/1.1.1.1/53"'))
    await assert.rejects(Sandbox.create('base', { network: { allowOut: ['example.com'] } }), /400/)
  })

  test('another key is none, and another template is none', async () => {
    await assert.rejects(Sandbox.create('base', { apiKey: `e2b_${'0'.repeat(40)}` }), AuthenticationError)
    await assert.rejects(Sandbox.create('no-such-template'), /404/)
  })
})
