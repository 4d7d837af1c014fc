// What all of the suite stands on: the SDK in the generation that is being tested, and sandboxes that are gone at the end.
import { after } from 'node:test'

const sdk = await import(process.env.AGBOX_TEST_SDK ?? 'e2b')
export default sdk
export const { Sandbox, Template } = sdk

// Nothing here is about how fast something is: a machine may be slow.
export const patience = { requestTimeoutMs: 120_000, timeoutMs: 600_000 }

const made = new Set()
after(async () => {
  await Promise.all([...made].map((id) => Sandbox.kill(id, { requestTimeoutMs: 120_000 })))
})

/** own has a sandbox killed at the end. */
export function own(sandbox) {
  made.add(sandbox.sandboxId)
  return sandbox
}

export async function create(opts = {}, template = 'base') {
  return own(await Sandbox.create(template, { allowInternetAccess: false, ...patience, ...opts }))
}

/** until asks again until the answer is one, a minute at most. */
export async function until(ask) {
  for (const end = Date.now() + 60_000; Date.now() < end; ) {
    const answer = await ask()
    if (answer) return answer
    await new Promise((go) => setTimeout(go, 50))
  }
  throw new Error(`it did not come about: ${ask}`)
}

/** once is a promise with the function that keeps it. */
export function once() {
  let keep
  const kept = new Promise((resolve) => { keep = resolve })
  return [kept, keep]
}
