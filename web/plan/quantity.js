// An element for one of a plan's numbers, with a slider over round numbers and a field that accepts any number.
const MANTISSAS = [];
for (let m = 100; m < 200; m += 5) MANTISSAS.push(m);
for (let m = 200; m < 500; m += 10) MANTISSAS.push(m);
for (let m = 500; m < 1000; m += 20) MANTISSAS.push(m);

function roundNumbers(low, high, whole) {
  const numbers = new Set([low]);
  for (let power = Math.floor(Math.log10(low)) - 2; power <= Math.log10(high); power++) {
    for (const mantissa of MANTISSAS) {
      const value = Number(`${mantissa}e${power}`);
      const number = whole ? Math.round(value) : value;
      if (number > low && number < high) numbers.add(number);
    }
  }
  return [...numbers.add(high)].sort((a, b) => a - b);
}

const GROUPED = "[1-9]\\d{0,2}([, \u00a0\u2009\u202f'’])\\d{3}(?:\\3\\d{3})*";
const TYPED = new RegExp(`^([-+−]?)((?:${GROUPED}|\\d+)(?:\\.\\d*)?|\\.\\d+)(?:[eE]([-+−]?\\d{1,4})|([kKM]))?$`);
const POWER_OF_TEN = /(?:(\d[\d.]*)\s*[·×*]\s*)?10\^([-−]?\d{1,4})/g;
const POINTS = /^\s*(?:±|\+\/-)?\s*(\S*?)\s*(?:%|points?)?\s*$/;
const POWERS = { k: 3, K: 3, M: 6 };

// Returns a number as people type it, or null; number() in quantity.py reads texts in the same way.
export function typedNumber(text, whole, percent) {
  const plain = percent ? text.trim().replace(POINTS, "$1") : text.trim();
  const match = TYPED.exec(plain.replace(POWER_OF_TEN, (_, digits, power) => `${digits ?? 1}e${power}`));
  if (!match) return null;
  const [, sign, digits, , power, scale] = match;
  const exponent = power?.replace("−", "-") ?? POWERS[scale] ?? 0;
  const value = Number(`${digits.replace(/[^\d.]/g, "")}e${exponent}`);
  const isWhole = Number.isInteger(value) && value < 1e20 && (power || scale || !digits.includes("."));
  return Number.isFinite(value) && (!whole || isWhole) ? (/[-−]/.test(sign) ? -value : value) : null;
}

export default {
  template: `
    <div class="quantity" :class="{ 'quantity-answer': answer }" role="group" :aria-label="label">
      <div class="quantity-head">
        <label :for="field">{{ label }} <span v-if="answer" class="quantity-mark">calculated</span></label>
        <label v-if="choosable" class="quantity-choice">
          <input type="radio" name="quantity-answer" :checked="answer" @change="$emit('chosen')"
                 :aria-label="'Calculate: ' + label" />
          calculate
        </label>
      </div>
      <div class="quantity-row">
        <input type="range" min="0" step="1" :max="numbers.length - 1" :value="place" :disabled="answer"
               :aria-label="label" :aria-valuetext="valueText" @input="onSlide" />
        <input type="text" inputmode="decimal" autocomplete="off" :id="field" :value="text" :readonly="answer" @input="onType"
               :aria-invalid="fault ? 'true' : 'false'" :aria-describedby="field + '-note'" />
        <span class="quantity-unit">{{ unit }}</span>
      </div>
      <div :id="field + '-note'" class="quantity-note">
        <span v-if="answer" class="unseen">Calculated from the other three. </span>
        <span>{{ note }}</span> <span v-if="fault" class="quantity-fault" role="alert">{{ fault }}</span>
      </div>
    </div>`,
  props: {
    label: String, unit: String, low: Number, high: Number, whole: Boolean, percent: Boolean, start: Number,
    choosable: Boolean, answer: Boolean, note: String, fault: String, locale: String, field: String,
  },
  emits: ["number", "chosen"],
  data() {
    return { text: String(this.start) };
  },
  computed: {
    numbers() {
      return roundNumbers(this.low, this.high, this.whole);
    },
    number() {
      return typedNumber(this.text, this.whole, this.percent);
    },
    place() {
      const at = this.numbers.findIndex((number) => number >= (this.number ?? this.low));
      return at < 0 ? this.numbers.length - 1 : at;
    },
    valueText() {
      return this.number === null ? "" : `${new Intl.NumberFormat(this.locale).format(this.number)} ${this.unit}`;
    },
  },
  methods: {
    onSlide(event) {
      this.text = String(this.numbers[Number(event.target.value)]);
      this.$emit("number", this.text);
    },
    onType(event) {
      this.text = event.target.value;
      this.$emit("number", this.text);
    },
    show(number) {
      this.text = String(number);
    },
  },
};
