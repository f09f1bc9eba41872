import type { Cause } from './types'

const types: Record<string, string> = { integer: 'a whole number', number: 'a number', string: 'a text', boolean: 'true or false', object: 'an object', array: 'a list' }

/** sentences are what API servers say about values, and how that is said to people. */
const sentences: [RegExp, string | ((match: string, group: string) => string)][] = [
  [/^should be less than or equal to (\S+)$/, 'At most $1.'],
  [/^should be greater than or equal to (\S+)$/, 'At least $1.'],
  [/^should be less than (\S+)$/, 'Less than $1.'],
  [/^should be greater than (\S+)$/, 'More than $1.'],
  [/^should be a multiple of (\S+)$/, 'A multiple of $1.'],
  [/^should be at least (\d+) chars long$/, 'At least $1 characters.'],
  [/^(?:should be at most|may not be more than|must have at most) (\d+) (?:chars long|bytes|characters)$/, 'At most $1 characters.'],
  [/^should have at least (\d+) (?:items|properties)$/, 'At least $1 entries.'],
  [/^(?:should|must) have at most (\d+) (?:items?|properties)$/, 'At most $1 entries.'],
  [/^shouldn't contain duplicates$/, 'An entry is there twice.'],
  [/^should match '(.*)'$/s, 'It has to match $1.'],
  [/^must be of type ([a-z0-9-]+)(?:,[a-z0-9-]+)*: .*$/s, (_, type) => `It has to be ${types[type] ?? type}.`],
  [/^supported values: (.*)$/s, (_, values) => `One of ${values}.`],
  [/^a lowercase RFC 1123 (?:subdomain|label) must consist .*$/s, 'Lower-case letters, digits and dashes only, with a letter or digit at both ends.'],
]

/** withoutValue leaves out the value that a message begins with: JSON and a colon. */
function withoutValue(message: string): string {
  for (let end = message.indexOf(': '); end >= 0; end = message.indexOf(': ', end + 1)) {
    try {
      JSON.parse(message.slice(0, end))
      return message.slice(end + 2)
    } catch {
      // The colon is in the value, or there is no value.
    }
  }
  return message
}

/** inWords says what is wrong with a value. Sentences that are not known, such as those of the authors of a schema, stay as they are. */
export function inWords({ message = '', reason = '' }: Cause): string {
  if (reason === 'FieldValueRequired' || message.startsWith('Required value')) {
    const detail = message.replace(/^Required value:?\s*/, '')
    return detail ? `A value is required: ${detail}` : 'A value is required.'
  }
  if (reason === 'FieldValueForbidden') return message.replace(/^Forbidden: /, '')
  const [, kind, rest] = /^(Invalid value|Unsupported value|Duplicate value|Too long|Too many): (.*)$/s.exec(message) ?? []
  if (!kind) return message
  if (kind === 'Duplicate value') return 'It is there twice.'
  const detail = withoutValue(rest!).replace(/^.*? in body (?=should|must)/s, '')
  for (const [pattern, sentence] of sentences) {
    if (pattern.test(detail)) return detail.replace(pattern, sentence as string)
  }
  return detail
}
