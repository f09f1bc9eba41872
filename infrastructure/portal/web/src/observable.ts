import { useEffect, useState } from 'preact/hooks'

/** Observable tells listeners that it has changed. */
export class Observable {
  private readonly listeners = new Set<() => void>()

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  changed(): void {
    for (const listener of [...this.listeners]) listener()
  }
}

/** useObservables renders the component again when one of them has changed. */
export function useObservables(...observables: (Observable | undefined)[]): void {
  const [, render] = useState(0)
  useEffect(() => {
    const listener = () => render((count) => count + 1)
    const ends = observables.map((observable) => observable?.subscribe(listener))
    listener() // for what has changed between rendering and here
    return () => ends.forEach((end) => end?.())
  }, observables)
}
