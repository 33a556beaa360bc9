// Music: each note a triangle wave with a short rise and fall, 100 quarter notes a minute.

const SIXTEENTH = 60 / 100 / 4; // seconds

// play(voices of [first step, steps, pitch]); heard(step) is called as it goes, over() at the end; returns what silences it
export function play(voices, heard, over) {
  const sound = new AudioContext(), begin = sound.currentTime + 0.1;
  let end = begin;
  for (const [first, length, pitch] of voices.flat()) {
    const tone = sound.createOscillator(), loud = sound.createGain(), from = begin + first * SIXTEENTH, to = from + length * SIXTEENTH;
    tone.type = "triangle";
    tone.frequency.value = 440 * 2 ** ((pitch - 69) / 12);
    loud.gain.setValueAtTime(0, from);
    loud.gain.linearRampToValueAtTime(0.12, from + 0.02);
    loud.gain.setValueAtTime(0.12, Math.max(from + 0.02, to - 0.04));
    loud.gain.linearRampToValueAtTime(0, to);
    tone.connect(loud).connect(sound.destination);
    tone.start(from); tone.stop(to);
    end = Math.max(end, to);
  }
  const beat = setInterval(() => sound.currentTime > end ? over() : heard(Math.floor((sound.currentTime - begin) / SIXTEENTH)), 50);
  return () => { clearInterval(beat); sound.close(); };
}
