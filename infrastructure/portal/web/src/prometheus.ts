/** Sample is a value of a series. */
export interface Sample {
  name: string
  labels: Record<string, string>
  value: number
}

const line = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\s*\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\}\s*|\s+)(\S+)(?:\s+-?\d+)?$/
const label = /\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\[\\"n])*)"\s*(,\s*|$)/y
const infinite: Record<string, number> = { Inf: Infinity, '+Inf': Infinity, '-Inf': -Infinity, NaN: NaN }

/** parseMetrics reads the text format of Prometheus, version 0.0.4, without the comments in it. */
export function parseMetrics(text: string): Sample[] {
  const samples: Sample[] = []
  text.split('\n').forEach((raw, index) => {
    const content = raw.trim()
    if (content === '' || content.startsWith('#')) return
    const [, name, labels = '', number] = line.exec(content) ?? []
    const value = number === undefined ? NaN : infinite[number] ?? Number(number)
    if (name === undefined || (Number.isNaN(value) && number !== 'NaN')) throw new SyntaxError(`line ${index + 1} is not in the text format of Prometheus`)
    samples.push({ name, labels: parseLabels(labels, index), value })
  })
  return samples
}

function parseLabels(text: string, index: number): Record<string, string> {
  const labels: Record<string, string> = {}
  label.lastIndex = 0
  for (let end = 0; end < text.length; end = label.lastIndex) {
    const [, name, value] = label.exec(text) ?? []
    if (name === undefined) throw new SyntaxError(`the labels in line ${index + 1} are not in the text format of Prometheus`)
    labels[name] = value!.replace(/\\(.)/g, (_, escaped: string) => (escaped === 'n' ? '\n' : escaped))
  }
  return labels
}
