// ComputeSDK's own E2B backend, as its documentation uses it.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { e2b } from '@computesdk/e2b'

test('a framework works as it does with E2B', async () => {
  const compute = e2b({ apiKey: process.env.E2B_API_KEY })
  const box = await compute.sandbox.create({ envs: { OF_SANDBOX: 'x' }, metadata: { by: 'computesdk' } })
  try {
    const ran = await box.runCommand('echo "$OF_SANDBOX $OF_COMMAND"; pwd; exit 3', { cwd: '/tmp', env: { OF_COMMAND: 'y' } })
    assert.equal(ran.exitCode, 3)
    assert.match(ran.stdout, /^x .*\n\/tmp\n$/)
    await box.filesystem.mkdir('/home/user/work')
    await box.filesystem.writeFile('/home/user/work/a.txt', 'a')
    assert.equal(await box.filesystem.readFile('/home/user/work/a.txt'), 'a')
    assert.deepEqual((await box.filesystem.readdir('/home/user/work')).map((e) => e.name), ['a.txt'])
    assert.equal(await box.filesystem.exists('/home/user/work/b.txt'), false)
    assert.ok((await compute.sandbox.list()).some((s) => s.sandboxId === box.sandboxId))
    assert.equal((await compute.sandbox.getById(box.sandboxId)).sandboxId, box.sandboxId)
  } finally {
    await box.destroy()
  }
})
