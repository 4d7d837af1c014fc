import assert from 'node:assert/strict'
import { describe, test, before } from 'node:test'
import sdk, { create, until } from './sdk.mjs'

const { FileNotFoundError, InvalidArgumentError, SandboxError } = sdk

describe('files', () => {
  let box
  before(async () => { box = await create() })

  test('write and read in every form', async () => {
    for (const [name, data] of Object.entries({ text: 'text äöü', buffer: new TextEncoder().encode('bytes').buffer, blob: new Blob(['blob']), empty: '' })) {
      const written = await box.files.write(`forms/${name}.txt`, data)
      assert.equal(written.path, `/home/user/forms/${name}.txt`)
      assert.equal(written.name, `${name}.txt`)
    }
    assert.equal(await box.files.read('forms/text.txt'), 'text äöü')
    assert.deepEqual(Buffer.from(await box.files.read('forms/buffer.txt', { format: 'bytes' })).toString(), 'bytes')
    assert.equal(await (await box.files.read('forms/blob.txt', { format: 'blob' })).text(), 'blob')
    assert.equal(await new Response(await box.files.read('forms/blob.txt', { format: 'stream' })).text(), 'blob')
    assert.equal(await box.files.read('forms/empty.txt'), '')
    await box.files.write('forms/text.txt', 'short')
    assert.equal(await box.files.read('/home/user/forms/text.txt'), 'short')
    await assert.rejects(box.files.read('forms/none.txt'), FileNotFoundError)
  })

  test('many in one request', async () => {
    const entries = Array.from({ length: 20 }, (_, i) => ({ path: `many/${i}.txt`, data: `file ${i}` }))
    assert.equal((await box.files.write(entries)).length, 20)
    assert.equal(await box.files.read('many/19.txt'), 'file 19')
    assert.deepEqual(await box.files.write([]), [])
  })

  test('gzip both ways, a stream, and a megabyte', async () => {
    const large = 'agbox '.repeat(200_000)
    await box.files.write('large.txt', large, { gzip: true })
    assert.equal(await box.files.read('large.txt', { gzip: true }), large)
    const stream = new Blob([large]).stream()
    await box.files.write('stream.txt', stream)
    assert.equal((await box.commands.run('md5sum < large.txt; md5sum < stream.txt')).stdout.split('\n')[0], (await box.commands.run('md5sum < stream.txt')).stdout.trim())
  })

  test('list, info, exists, makeDir, rename, remove', async () => {
    assert.equal(await box.files.makeDir('tree/one/two'), true)
    assert.equal(await box.files.makeDir('tree/one/two'), false)
    await box.files.write('tree/one/a.txt', 'a')
    await box.files.write('tree/b.txt', 'bb')
    const names = async (depth) => (await box.files.list('tree', { depth })).map((e) => e.path.replace('/home/user/tree/', ''))
    assert.deepEqual(await names(1), ['b.txt', 'one'])
    assert.deepEqual(await names(2), ['b.txt', 'one', 'one/a.txt', 'one/two'])
    await assert.rejects(box.files.list('tree', { depth: 0 }), InvalidArgumentError)
    await assert.rejects(box.files.list('none'), FileNotFoundError)
    const info = await box.files.getInfo('tree/b.txt')
    assert.deepEqual([info.type, info.size, info.mode, info.permissions, info.owner, info.group], ['file', 2, 0o644, '-rw-r--r--', 'user', 'user'])
    const dir = await box.files.getInfo('tree/one')
    assert.deepEqual([dir.type, dir.mode, dir.permissions], ['dir', 0o755, 'drwxr-xr-x'])
    await box.commands.run('ln -s b.txt tree/link')
    assert.equal((await box.files.getInfo('tree/link')).symlinkTarget, '/home/user/tree/b.txt')
    assert.equal(await box.files.exists('tree/b.txt'), true)
    assert.equal(await box.files.exists('tree/c.txt'), false)
    assert.equal((await box.files.rename('tree/b.txt', 'tree/new/c.txt')).path, '/home/user/tree/new/c.txt')
    await assert.rejects(box.files.rename('tree/b.txt', 'tree/x'), FileNotFoundError)
    await box.files.remove('tree')
    await box.files.remove('tree')
    assert.equal(await box.files.exists('tree'), false)
  })

  test('metadata stays with a file', async () => {
    const written = await box.files.write('described.txt', 'x', { metadata: { author: 'ann' } })
    assert.deepEqual(written.metadata, { author: 'ann' })
    assert.deepEqual((await box.files.getInfo('described.txt')).metadata, { author: 'ann' })
    await box.files.write('described.txt', 'y')
    assert.deepEqual((await box.files.getInfo('described.txt')).metadata ?? {}, {})
  })

  test('watch: what happens in a directory, and below it', async () => {
    await box.files.makeDir('watched/sub')
    const events = []
    const watch = await box.files.watchDir('watched', (e) => events.push(e), { recursive: true, includeEntry: true, timeoutMs: 0 })
    await box.files.write('watched/sub/a.txt', 'a')
    await box.files.makeDir('watched/later')
    await until(() => events.some((e) => e.type === 'create' && e.name === 'later'))
    await box.files.write('watched/later/b.txt', 'b')
    await until(() => events.some((e) => e.type === 'write' && e.name === 'sub/a.txt') && events.some((e) => e.name === 'later/b.txt'))
    assert.ok(events.some((e) => e.entry?.path === '/home/user/watched/sub/a.txt'))
    await watch.stop()
    await assert.rejects(box.files.watchDir('none', () => {}), FileNotFoundError)
    await assert.rejects(box.files.watchDir('large.txt', () => {}), SandboxError)
  })

  test('signed URLs, for who has nothing else', async () => {
    await box.files.write('signed.txt', 'signed')
    const down = await box.downloadUrl('signed.txt', { useSignatureExpiration: 3_600_000 })
    assert.equal(await (await fetch(down)).text(), 'signed')
    const up = await box.uploadUrl('uploaded.txt')
    const form = new FormData()
    form.append('file', new Blob(['up']), 'uploaded.txt')
    assert.equal((await fetch(up, { method: 'POST', body: form })).status, 200)
    assert.equal(await box.files.read('uploaded.txt'), 'up')
    const past = await fetch(await box.downloadUrl('signed.txt', { useSignatureExpiration: -120_000 }))
    assert.equal(past.status, 401)
    assert.deepEqual(await past.json(), { code: 401, message: 'signature is already expired' })
    assert.equal((await fetch(down.replace(/signature=[^&]*/, 'signature=v1_wrong'))).status, 401)
  })
})
