// Builds ../dist from the sources: one script, one style sheet, an icon, index.html, the licences of what is bundled, and build.json, by which a
// test of package portal knows that the output belongs to the sources.
import { build } from 'esbuild'
import { createHash } from 'node:crypto'
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'

const output = '../dist'
const licences = 'assets/licences.txt'

// sources are the files whose content decides the output, sorted, with slashes.
async function sources() {
  const files = ['build.mjs', 'index.html', 'package.json', 'package-lock.json', 'tsconfig.json']
  for (const entry of await readdir('src', { recursive: true, withFileTypes: true })) {
    if (entry.isFile()) files.push(join(entry.parentPath, entry.name))
  }
  return files.sort()
}

// digest is SHA-256 over the lines "<digest of the content>  <name>" of files.
async function digest(files) {
  const lines = []
  for (const file of files) lines.push(`${createHash('sha256').update(await readFile(file)).digest('hex')}  ${file}\n`)
  return createHash('sha256').update(lines.join('')).digest('hex')
}

// bundled returns the packages that the script has parts of.
function bundled(metafile) {
  const names = Object.keys(metafile.inputs).map((name) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(name)?.[1])
  return [...new Set(names.filter(Boolean))].sort()
}

async function licenceOf(name) {
  const { version, license } = JSON.parse(await readFile(join('node_modules', name, 'package.json'), 'utf8'))
  const file = (await readdir(join('node_modules', name))).find((entry) => /^licen[cs]e/i.test(entry))
  return `${name} ${version} (${license})\n\n${await readFile(join('node_modules', name, file), 'utf8')}`
}

await rm(output, { recursive: true, force: true })
const { metafile } = await build({
  entryPoints: { portal: 'src/main.tsx', style: 'src/style.css', mark: 'src/mark.svg' },
  loader: { '.svg': 'copy' },
  entryNames: '[name]-[hash]',
  assetNames: '[name]-[hash]',
  outdir: join(output, 'assets'),
  bundle: true,
  minify: true,
  format: 'esm',
  target: ['es2022'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  metafile: true,
  logLevel: 'warning',
})
const assets = Object.keys(metafile.outputs).map((name) => basename(name))
const index = (await readFile('index.html', 'utf8'))
  .replace('{{js}}', assets.find((name) => name.endsWith('.js')))
  .replace('{{svg}}', assets.find((name) => name.endsWith('.svg')))
  .replace('{{css}}', assets.find((name) => name.endsWith('.css')))
await mkdir(join(output, 'assets'), { recursive: true })
await writeFile(join(output, 'index.html'), index)
const texts = await Promise.all(bundled(metafile).map(licenceOf))
await writeFile(join(output, licences), texts.join(`\n${'-'.repeat(78)}\n\n`))
const files = ['index.html', licences, ...assets.map((name) => `assets/${name}`)].sort()
process.chdir(output)
const built = await digest(files)
process.chdir('../web')
await writeFile(join(output, 'build.json'), `${JSON.stringify({ sources: await digest(await sources()), output: built }, null, 2)}\n`)
