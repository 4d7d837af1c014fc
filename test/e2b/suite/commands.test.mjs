import assert from 'node:assert/strict'
import { describe, test, before } from 'node:test'
import sdk, { Sandbox, create, once, until } from './sdk.mjs'

const { CommandExitError, NotFoundError, TimeoutError } = sdk

describe('commands', () => {
  let box
  before(async () => { box = await create({ envs: { OF_SANDBOX: 'sandbox' } }) })

  test('run: output, user, directory, environment', async () => {
    const result = await box.commands.run('echo out; echo err >&2; whoami; pwd; echo "$HOME $OF_SANDBOX $OF_REQUEST $E2B_SANDBOX_ID"', { envs: { OF_REQUEST: 'request' } })
    assert.equal(result.exitCode, 0)
    assert.equal(result.stdout, `out\nuser\n/home/user\n/home/user sandbox request ${box.sandboxId}\n`)
    assert.equal(result.stderr, 'err\n')
    assert.equal((await box.commands.run('echo "<$OF_REQUEST>"')).stdout, '<>\n')
    assert.equal((await box.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
  })

  test('run: quoting, many lines, utf-8, another user, sudo', async () => {
    const text = `it's "quoted" \\ $HOME \`x\` äöü 日本\nand a second line`
    assert.equal((await box.commands.run(`cat <<'END'\n${text}\nEND`)).stdout, text + '\n')
    assert.equal((await box.commands.run('id -u', { user: 'root' })).stdout, '0\n')
    assert.equal((await box.commands.run('sudo id -u')).stdout, '0\n')
  })

  test('run: an exit code is an error that has the output', async () => {
    await assert.rejects(box.commands.run('echo before; exit 7'), (e) => e instanceof CommandExitError && e.exitCode === 7 && e.stdout === 'before\n')
    await assert.rejects(box.commands.run('no-such-command'), (e) => e instanceof CommandExitError && e.exitCode === 127)
  })

  test('run: what takes too long is ended', async () => {
    await assert.rejects(box.commands.run('sleep 1000', { timeoutMs: 1000 }), (e) => e instanceof TimeoutError)
  })

  test('run: output is heard while the command runs', async () => {
    const [heard, hear] = once()
    const handle = await box.commands.run('echo first; read line; echo "got $line"', { background: true, stdin: true, onStdout: hear })
    assert.equal(await heard, 'first\n')
    await box.commands.sendStdin(handle.pid, 'typed\n')
    assert.equal((await handle.wait()).stdout, 'first\ngot typed\n')
  })

  test('background: list, connect, kill', async () => {
    const handle = await box.commands.run('sleep 1000', { background: true })
    assert.ok((await box.commands.list()).some((p) => p.pid === handle.pid))
    const again = await box.commands.connect(handle.pid)
    assert.equal(again.pid, handle.pid)
    assert.equal((await box.commands.run(`kill -0 ${handle.pid} && echo alive`)).stdout, 'alive\n')
    assert.equal(await box.commands.kill(handle.pid), true)
    await assert.rejects(again.wait(), (e) => e instanceof CommandExitError && e.exitCode === -1)
    await assert.rejects(box.commands.run(`kill -0 ${handle.pid}`), CommandExitError)
    assert.equal(await box.commands.kill(999_999), false)
    await assert.rejects(box.commands.connect(999_999), NotFoundError)
  })

  test('stdin: bytes until it is closed', async () => {
    const handle = await box.commands.run('cat', { background: true, stdin: true })
    await box.commands.sendStdin(handle.pid, 'one\ntwo\n')
    await box.commands.sendStdin(handle.pid, '')
    await box.commands.sendStdin(handle.pid, 'three')
    await box.commands.closeStdin(handle.pid)
    assert.equal((await handle.wait()).stdout, 'one\ntwo\nthree')
  })

  test('pty: size, input, reconnect, kill', async () => {
    let text = ''
    let [more, tell] = once()
    const onData = (data) => { text += new TextDecoder().decode(data); const now = tell; [more, tell] = once(); now() }
    const says = async (what) => { while (!what.test(text)) await more }
    const handle = await box.pty.create({ cols: 80, rows: 24, onData, envs: { OF_PTY: 'pty' }, timeoutMs: 0 })
    const type = (line) => box.pty.sendInput(handle.pid, new TextEncoder().encode(line + '\n'))
    await type('echo "env=$OF_PTY"')
    await says(/env=pty/)
    await box.pty.resize(handle.pid, { cols: 100, rows: 30 })
    await type('stty size')
    await says(/30 100/)
    await handle.disconnect()
    text = ''
    const again = await box.pty.connect(handle.pid, { onData, timeoutMs: 0 })
    await type('echo still-$((40+2))')
    await says(/still-42/)
    await type('exit')
    assert.equal((await again.wait()).exitCode, 0)
    const other = await box.pty.create({ cols: 80, rows: 24, onData: () => {}, timeoutMs: 0 })
    assert.equal(await box.pty.kill(other.pid), true)
    assert.equal(await box.pty.kill(999_999), false)
  })

  test('git: what the SDK does by commands', async () => {
    if (!box.git) return // a later generation's
    await box.git.init('/home/user/repository', { initialBranch: 'main' })
    await box.files.write('/home/user/repository/a.txt', 'a')
    await box.git.configureUser('Ann', 'ann@example.com')
    await box.git.add('/home/user/repository')
    await box.git.commit('/home/user/repository', 'the first')
    const status = await box.git.status('/home/user/repository')
    assert.equal(status.isClean, true)
    assert.equal(status.currentBranch, 'main')
  })

  test('a sandbox that is killed ends its commands with a timeout', async () => {
    const other = await create()
    const handle = await other.commands.run('echo up; sleep 1000', { background: true, timeoutMs: 0 })
    await until(() => handle.stdout === 'up\n')
    const ended = assert.rejects(handle.wait(), (e) => e instanceof TimeoutError)
    assert.equal(await Sandbox.kill(other.sandboxId), true)
    await ended
    assert.equal(await other.isRunning(), false)
  })
})
