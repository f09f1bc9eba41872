// Search, and what depends on the size of the screen. Without this script all pages can be read and found in the navigation.
'use strict'

// The folder of this script is that of the site.
const root = new URL('.', document.currentScript.src)

// The navigation takes the whole width of a small screen, so it is closed there.
if (matchMedia('(max-width: 60rem)').matches) {
  for (const details of document.querySelectorAll('.columns details')) details.open = false
}

// What scrolls sideways can be scrolled with the keyboard.
for (const box of document.querySelectorAll('.table, .drawing, pre')) {
  if (box.scrollWidth > box.clientWidth) box.tabIndex = 0
  else box.removeAttribute('tabindex')
}

// Each heading has a link to itself, to copy. The keyboard reaches the same links in "On this page".
for (const heading of document.querySelectorAll('main :is(h2, h3, h4)[id]')) {
  const link = document.createElement('a')
  link.className = 'anchor'
  link.href = `#${heading.id}`
  link.textContent = '#'
  link.tabIndex = -1
  link.setAttribute('aria-label', `Link to “${heading.textContent}”`)
  heading.append(' ', link)
}

const form = document.querySelector('form')
const query = document.querySelector('#query')
const results = document.querySelector('#results')
const maxResults = 30

let loading
// loadIndex adds the index to the page, once.
function loadIndex() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement('script')
    script.src = new URL('search-index.js', root)
    script.onload = () => resolve(globalThis.searchIndex)
    script.onerror = () => reject(new Error('the index cannot be loaded'))
    document.head.append(script)
  })
  return loading
}

const words = (text) => text.toLowerCase().split(/[^\p{L}\p{N}_.\-:/]+/u).filter(Boolean)

// score is 0 unless all words occur. A word counts more in the heading than in the title of the page, and there more than in the text.
function score({page, heading, text}, wanted) {
  let sum = 0
  for (const word of wanted) {
    const at = [heading, page, text].findIndex((where) => where.toLowerCase().includes(word))
    if (at < 0) return 0
    sum += [9, 3, 1][at] + (new RegExp(`(^|[^\\p{L}\\p{N}])${word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}($|[^\\p{L}\\p{N}])`, 'iu').test([heading, page, text][at]) ? 2 : 0)
  }
  return sum
}

// excerpt is the text around the first word.
function excerpt(text, wanted) {
  const at = Math.max(0, Math.min(...wanted.map((word) => text.toLowerCase().indexOf(word)).filter((i) => i >= 0), text.length))
  const from = at < 60 ? 0 : text.indexOf(' ', at - 60) + 1
  const cut = text.slice(from, from + 180)
  return (from > 0 ? '… ' : '') + cut + (from + 180 < text.length ? ' …' : '')
}

function result({page, address, heading, text}, wanted) {
  const item = document.createElement('li')
  const link = document.createElement('a')
  link.href = new URL(address, root)
  link.textContent = heading === page ? page : `${page}: ${heading}`
  const about = document.createElement('p')
  about.textContent = excerpt(text, wanted)
  item.append(link, about)
  return item
}

function close() {
  results.hidden = true
  results.replaceChildren()
}

async function search() {
  const asked = query.value
  const wanted = words(asked)
  if (wanted.length === 0) return close()
  let index
  try {
    index = await loadIndex()
  } catch {
    index = undefined
  }
  if (query.value !== asked) return // a later call shows its own
  const count = document.createElement('p')
  count.setAttribute('role', 'status')
  const list = document.createElement('ol')
  if (index) {
    const found = index.map((entry) => [score(entry, wanted), entry]).filter(([points]) => points > 0).sort(([a], [b]) => b - a)
    count.textContent = found.length === 0 ? `Nothing is found for “${asked}”` : `${found.length} ${found.length === 1 ? 'section' : 'sections'} for “${asked}”${found.length > maxResults ? `, the best ${maxResults} are` : ''}`
    list.append(...found.slice(0, maxResults).map(([, entry]) => result(entry, wanted)))
  } else {
    count.textContent = 'The index of the search cannot be loaded'
  }
  results.replaceChildren(count, ...(list.children.length > 0 ? [list] : []))
  results.hidden = false
}

form.hidden = false
query.addEventListener('focus', () => loadIndex().catch(() => {}), {once: true})
query.addEventListener('input', search)
form.addEventListener('submit', (event) => {
  event.preventDefault()
  results.querySelector('a')?.focus()
})
results.addEventListener('click', (event) => {
  if (event.target.closest('a')) close()
})
document.addEventListener('keydown', (event) => {
  if (event.key === '/' && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest('input, textarea, select')) {
    event.preventDefault()
    query.focus()
  } else if (event.key === 'Escape' && !results.hidden) {
    close()
    query.focus()
  } else if ((event.key === 'ArrowDown' || event.key === 'ArrowUp') && !results.hidden && event.target.closest('header, #results')) {
    const stops = [query, ...results.querySelectorAll('a')]
    const to = stops[stops.indexOf(document.activeElement) + (event.key === 'ArrowDown' ? 1 : -1)]
    if (to) {
      event.preventDefault()
      to.focus()
    }
  }
})
