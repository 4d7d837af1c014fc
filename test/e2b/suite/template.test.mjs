import assert from 'node:assert/strict'
import { mkdtemp, mkdir, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import sdk, { Sandbox, Template, create } from './sdk.mjs'

test('a template is built from steps, and sandboxes are made of it', async () => {
  const context = await mkdtemp(join(tmpdir(), 'agbox-context-'))
  await mkdir(join(context, 'app'))
  await writeFile(join(context, 'app', 'a.txt'), 'from the context')
  const name = `suite-${process.pid}-${Date.now()}`
  const template = Template({ fileContextPath: context })
    .fromTemplate('base')
    .setEnvs({ OF_TEMPLATE: 'template' })
    .copy('app', '/home/user/app')
    .runCmd('echo "built by $(whoami) with $OF_TEMPLATE" > /home/user/built.txt')
    .runCmd('echo root > /etc/of-template', { user: 'root' })
    .setStartCmd('echo started > /tmp/started; exec sleep infinity', 'test -s /tmp/started')
  const logs = []
  const built = await Template.build(template, name, { onBuildLogs: (entry) => logs.push(entry.message) })
  assert.ok(logs.length > 0)
  assert.equal(await Template.exists(name), true)
  assert.equal(await Template.exists('no-such-template'), false)
  const box = await create({}, name)
  assert.equal((await box.commands.run('cat built.txt app/a.txt /etc/of-template /tmp/started; echo; echo $OF_TEMPLATE')).stdout,
    'built by user with template\nfrom the contextroot\nstarted\n\ntemplate\n')
  await box.kill()
  assert.equal(await Sandbox.deleteSnapshot(built.templateId), true)
})

test('a step that fails fails the build, and says why', async () => {
  const template = Template().fromTemplate('base').runCmd('echo before; exit 9')
  await assert.rejects(Template.build(template, `fails-${process.pid}`), (e) => e instanceof sdk.BuildError && /exit code 9/.test(e.message))
})
